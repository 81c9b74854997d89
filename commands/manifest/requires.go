package manifest

import (
	"strings"

	"bindery/events"
)

// ParseRequires reads the value of --requires, SLOT=PROVISION[:CONSTRAINT]. The
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
	r.Provision, r.Version, cut = strings.Cut(need, ":")
	d.checkName(r.Provision, position{}, "provision of slot "+plain(slot))
	switch {
	case cut && r.Version == "":
		d.fail(position{}, CodeVersion, "version of slot %s is empty", plain(slot)).Write = "--requires " + plain(slot) + "=" + plain(r.Provision)
	case cut:
		d.checkVersion(r.Version, position{}, "version of slot "+plain(slot), events.CheckConstraint)
	}
	if len(d.errs) > 0 {
		return "", Requirement{}, d.errs
	}
	return slot, r, nil
}
