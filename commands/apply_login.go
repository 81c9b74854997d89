package commands

import (
	"slices"

	"bindery/commands/manifest"
	"bindery/events"
)

// loginSlots lists the slots with a login in the manifest.
func loginSlots(m *manifest.Manifest) []string {
	return slotsOf(m.Logins, func(l manifest.Login) string { return l.Slot })
}

// login says which login a slot's is that was made by hand. Once an agent's has taken its
// place there is nothing more to say: the manifest may go on naming the one it followed.
func (a *applier) login(slot string) error {
	f := a.fields("login of " + slot)
	defer f.done()
	i := slices.IndexFunc(a.c.Manifest.Logins, func(l manifest.Login) bool { return l.Slot == slot })
	want := a.c.Manifest.Logins[i]
	found, err := a.liveSlot(slot)
	if err != nil {
		return err
	}
	if found.Binding != 0 {
		if use := a.InUse(a.Binding(found.Binding)); use != 0 {
			c := a.Credential(use)
			if _, _, byAgent := a.Maker(c); byAgent {
				return nil
			}
			if !c.ByHand || a.Login(c) != (events.Login{User: want.User, Database: want.Database}) {
				f.note(Changed, "%s", want.User)
			}
			return AdoptCredential{Slot: slot, Generation: c.Generation, User: want.User, Database: want.Database}.Decide(a.Tx)
		}
	}
	f.note(Created, "%s", want.User)
	return AdoptCredential{Slot: slot, User: want.User, Database: want.Database, SecretRef: want.SecretRef}.Decide(a.Tx)
}
