package events

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Login is what a credential logs in as: never what proves it.
type Login struct {
	User     string `json:"user"`
	Database string `json:"database,omitempty" jsonschema:"description=what it logs in to there\\, where the service has several"`
}

// Maker is who made a login: the hook of the agent of a node, the path of its file
// below the directory of hooks: provider/postgres-database.
type Maker struct {
	Node ID     `json:"node"`
	Hook string `json:"hook"`
}

// MaxLogin is the greatest length of a user's name, of a database's, and of a hook's, in
// bytes.
const MaxLogin = 128

// CheckLogin reports whether s can be the name of a user or of a database: 1 to 128
// bytes of characters that a terminal shows, without a blank at an end, and nothing that
// looks like a secret.
func CheckLogin(s string) error {
	switch {
	case s == "":
		return errors.New("the name is empty")
	case len(s) > MaxLogin:
		return fmt.Errorf("the name is %d bytes long; at most %d are allowed", len(s), MaxLogin)
	case strings.TrimSpace(s) != s:
		return errors.New("the name begins or ends with a blank")
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("the name has a character that is not shown")
	}
	return CheckNoSecret(s)
}

func (l *Login) check() error {
	if l == nil {
		return nil
	}
	if err := CheckLogin(l.User); err != nil || l.Database == "" {
		return err
	}
	return CheckLogin(l.Database)
}

func (m *Maker) check() error {
	switch {
	case m == nil:
		return nil
	case m.Node.IsZero():
		return errors.New("a maker on no node")
	}
	return CheckLogin(m.Hook)
}

// Did is what was done so that a credential logs in no longer. The zero value is not
// said.
type Did string

// What can have been done.
const (
	DidDrop   Did = "dropped" // the login was there, and is gone
	DidAbsent Did = "absent"  // it was not there
)

func (d Did) check() error {
	switch d {
	case "", DidDrop, DidAbsent:
		return nil
	}
	return fmt.Errorf("what was done is %q, not dropped or absent", string(d))
}
