package manifest

import "bindery/events"

// login reads an entry of logins.
func (d *decoder) login(e entry) {
	var v Login
	found := len(d.errs)
	fields := map[string]position{}
	d.object(e, place{}, kindLogin, "a login", func(f entry) {
		of := f.key + " of a login"
		fields[f.key] = f.at
		switch f.key {
		case "slot":
			v.Slot = d.slotRef(f, of)
		case "user":
			v.User = d.loginName(f, of)
		case "database":
			v.Database = d.loginName(f, of)
		case "secret_ref":
			v.SecretRef = d.secretRef(f, of)
		}
	})
	if len(d.errs) == found && d.entryOf("logins", v.Slot, CodeDuplicateLogin, "the login of "+v.Slot, e.at, fields) {
		d.m.Logins = append(d.m.Logins, v)
	}
}

// loginName is a value that must be the name of a user or of a database.
func (d *decoder) loginName(e entry, what string) string {
	s, ok := d.rawText(e, what, false)
	if !ok {
		return ""
	}
	if err := events.CheckNoSecret(s); err != nil {
		d.secret(d.at(e.value), what, err)
	} else if err := events.CheckLogin(s); err != nil {
		d.fail(d.at(e.value), CodeInvalid, "%s: %v", what, err)
	}
	return s
}

// secretRef is a value that must be a reference to a secret. What is anything else may be
// the secret itself, and is not repeated.
func (d *decoder) secretRef(e entry, what string) string {
	s, ok := d.rawText(e, what, false)
	if !ok {
		return ""
	}
	if err := events.CheckSecretRef(s); err != nil {
		d.secret(d.at(e.value), what, err)
	}
	return s
}
