package ledger

import (
	"errors"
	"fmt"
	"strings"
)

// ErrExists is wrapped by the error of a Create whose ledger is there already.
var ErrExists = errors.New("the ledger exists already")

// ErrBadGroup is wrapped by the error of an Append whose commands are not in
// the form it asks for. It is a mistake of the caller; nothing was sent.
var ErrBadGroup = errors.New("not a group of commands that can be appended")

// MissingError says that the ledger asked for is not there.
type MissingError struct {
	Mesh  string   // the mesh asked for; empty: any
	There []string // the meshes that have a ledger, sorted
}

func (e *MissingError) Error() string {
	what := "no ledger"
	if e.Mesh != "" {
		what = fmt.Sprintf("no ledger of mesh %q", e.Mesh)
	}
	switch {
	case len(e.There) == 0:
		return "opening: " + what
	case e.Mesh == "":
		return fmt.Sprintf("opening: more than one ledger, name the mesh: %s", strings.Join(quoted(e.There), ", "))
	}
	return fmt.Sprintf("opening: %s; there is %s", what, strings.Join(quoted(e.There), ", "))
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return out
}

// Setting is one field of a stream's configuration that is not as the ledger
// needs it. Name is the field's name in the server's JSON.
type Setting struct {
	Name  string `json:"name"`
	Want  string `json:"want"`
	Found string `json:"found"`
}

// ConfigError lists what is wrong with the configuration of a ledger's stream.
// Somebody with the rights to do so has changed it after Create.
type ConfigError struct {
	Stream   string
	Settings []Setting
}

func (e *ConfigError) Error() string {
	parts := make([]string, len(e.Settings))
	for i, s := range e.Settings {
		parts[i] = fmt.Sprintf("%s is %s, need %s", s.Name, s.Found, s.Want)
	}
	return fmt.Sprintf("opening: configuration of stream %q: %s", e.Stream, strings.Join(parts, "; "))
}

// VersionError says that the server is too old to keep a ledger.
type VersionError struct{ Found, Need string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("opening: the server has version %q, need %q or later", e.Found, e.Need)
}

// ConflictError says that the stream did not end where the writer thought:
// others have appended. Nothing of the command it is about was stored, and
// nothing of it can be stored any more.
type ConflictError struct {
	Expected uint64 // the last sequence the refused command was decided on
	Actual   uint64 // the stream's last sequence as found afterwards
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("appending after sequence %d: the stream ends at %d", e.Expected, e.Actual)
}

// TooLargeError says that a command does not fit; it was not stored.
type TooLargeError struct {
	Seq   uint64 // of the event that is too large; 0: the command as a whole
	Size  int64  // bytes, or events where Unit says so; 0: only the server knows
	Limit int64
	Unit  string
	Err   error // the server's answer, where it was the server that refused
}

func (e *TooLargeError) Error() string {
	what := "the command"
	if e.Seq != 0 {
		what = fmt.Sprintf("event %d", e.Seq)
	}
	if e.Err != nil {
		return fmt.Sprintf("appending: %s is too large: %v", what, e.Err)
	}
	return fmt.Sprintf("appending: %s is too large: %d %s, at most %d", what, e.Size, e.Unit, e.Limit)
}

// Unwrap returns the server's answer, if there was one.
func (e *TooLargeError) Unwrap() error { return e.Err }

// StoreError says that the server refused to store a command, for a reason
// that lies with the server: its disk is full, its limits are reached, the
// stream is sealed. The command was not stored.
type StoreError struct {
	Code int // the JetStream error code (server/errors.json)
	Err  error
}

func (e *StoreError) Error() string { return fmt.Sprintf("appending: the server refuses: %v", e.Err) }

// Unwrap returns the server's answer.
func (e *StoreError) Unwrap() error { return e.Err }

// UnknownError says that the context ended before it was known whether a
// command is stored. It may be stored now, or later. Ask again with the same
// command.
type UnknownError struct {
	Stored int    // commands from the front that are known to be stored
	After  uint64 // the sequence after which the outcome is unknown
	Err    error  // why: what the last try brought, and the context's error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("appending after sequence %d: the outcome is unknown: %v", e.After, e.Err)
}

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// DamageError says that the log is not what was appended to it.
type DamageError struct {
	Seq uint64 // the first sequence that is wrong
	Why string
	Err error // the cause, where an event could not be read
}

func (e *DamageError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("reading sequence %d: damaged log: %s: %v", e.Seq, e.Why, e.Err)
	}
	return fmt.Sprintf("reading sequence %d: damaged log: %s", e.Seq, e.Why)
}

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Err }

// LockedError says that another process uses the store.
type LockedError struct {
	Dir    string
	Holder Holder // zero where the holder has not said yet who it is
}

func (e *LockedError) Error() string {
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("locking store %q: in use", e.Dir)
	}
	return fmt.Sprintf("locking store %q: in use by process %d (%s) since %s",
		e.Dir, e.Holder.PID, e.Holder.Command, e.Holder.Since.Format("2006-01-02 15:04:05 MST"))
}
