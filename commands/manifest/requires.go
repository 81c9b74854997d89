package manifest

import (
	"fmt"
	"strings"

	"bindery/events"
)

// ParseRequires reads the value of --requires, SLOT=PROVISION[:CONSTRAINT], or
// SLOT=PROVISION@VERSION for at least that one, which no shell takes apart. The
// error is of type Errors and has no position.
func ParseRequires(flag string) (slot string, r Requirement, err error) {
	d := newDecoder()
	if len(flag) <= maxText {
		if err := events.CheckNoSecret(flag); err != nil {
			d.secret(position{}, "--requires", err)
			return "", Requirement{}, d.errs
		}
	}
	slot, need, cut := strings.Cut(flag, "=")
	if !cut || slot == "" || need == "" {
		e := d.fail(position{}, CodeInvalid, "--requires %s is not SLOT=PROVISION[:CONSTRAINT]", show(flag))
		e.Write = "--requires 'db=postgres-database:>=14'"
		return "", Requirement{}, d.errs
	}
	d.checkName(slot, position{}, "slot")
	if name, least, found := strings.Cut(need, "@"); found && !strings.Contains(name, ":") {
		need = name + ":>=" + least
	}
	r.Provision, r.Version, cut = strings.Cut(need, ":")
	d.checkName(r.Provision, position{}, "provision of slot "+plain(slot))
	switch {
	case cut && strings.TrimLeft(r.Version, "<>=!~^") == "":
		e := d.fail(position{}, CodeVersion, "version of slot %s is empty", plain(slot))
		e.Why = "a shell takes what follows < or > as the name of a file, and has emptied or made that file, unless the whole is quoted"
		e.Write = fmt.Sprintf("--requires '%s=%s:>=VERSION', or --requires %s=%s@VERSION for at least that one", slot, r.Provision, slot, r.Provision)
	case cut:
		d.checkVersion(r.Version, position{}, "version of slot "+plain(slot), events.CheckConstraint)
	}
	if len(d.errs) > 0 {
		return "", Requirement{}, d.errs
	}
	return slot, r, nil
}
