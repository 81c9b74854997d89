package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bindery/events"
	"bindery/projections"
)

// The codes of a manifest's errors. The list is only appended to.
const (
	CodeInvalid           = "manifest_invalid"    // not YAML, or not this shape
	CodeUnreadable        = "manifest_unreadable" // the file could not be read
	CodeTooLarge          = "too_large"
	CodeName              = "name_invalid"
	CodeNameReserved      = "name_reserved"
	CodeEndpoint          = "endpoint_invalid"
	CodeSecret            = "secret_in_ledger"
	CodeVersion           = "version_invalid"
	CodeFeature           = "feature_invalid"
	CodeDuplicateNode     = "duplicate_node"
	CodeDuplicateDefault  = "duplicate_default"
	CodeDuplicateOverride = "duplicate_override"
	CodeDuplicateLogin    = "duplicate_login"
)

// Error is one thing that is wrong, and where.
type Error struct {
	Code    string
	File    string // empty for a flag
	Line    int    // 1-based; 0 where no line is at fault
	Column  int    // 1-based, in characters
	Message string // what
	Why     string
	Write   string          // what to write instead, where it is known
	Fix     projections.Fix // the command that helps, where one does
	Suggest []string        // the nearest that would be right
}

func (e *Error) Error() string {
	if p := (position{e.File, e.Line, e.Column}).String(); p != "" {
		return p + ": " + e.Message
	}
	return e.Message
}

// Errors is everything that was found, in the order of the text, at most
// MaxErrors. It is never empty where it is returned.
type Errors []*Error

func (e Errors) Error() string {
	s := make([]string, len(e))
	for i := range e {
		s[i] = e[i].Error()
	}
	return strings.Join(s, "\n")
}

// Unwrap gives errors.As the first *Error.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i := range e {
		out[i] = e[i]
	}
	return out
}

// position is a place in a text.
type position struct {
	file         string
	line, column int
}

func (p position) String() string {
	switch {
	case p.line == 0:
		return p.file
	case p.file == "":
		return fmt.Sprintf("%d:%d", p.line, p.column)
	}
	return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.column)
}

// fail records an error. The caller may add to what it returns.
func (d *decoder) fail(at position, code, format string, args ...any) *Error {
	e := &Error{Code: code, File: at.file, Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...)}
	if d.full() || slices.ContainsFunc(d.errs, func(o *Error) bool { // an alias shows the same text again
		return o.Line == e.Line && o.Column == e.Column && o.File == e.File && o.Message == e.Message
	}) {
		return e
	}
	d.errs = append(d.errs, e)
	return e
}

// full reports whether enough was found.
func (d *decoder) full() bool { return len(d.errs) >= MaxErrors }

func (d *decoder) result() (*Manifest, error) {
	if len(d.errs) == 0 {
		return d.m, nil
	}
	order := map[string]int{}
	for i, f := range d.files {
		order[f] = i
	}
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return nil, d.errs
}

// show quotes what somebody wrote, shortened, or says that it must not be
// shown.
func show(s string) string {
	if len(s) > maxText {
		return fmt.Sprintf("of %d bytes", len(s))
	}
	if events.CheckNoSecret(s) != nil {
		return "(not shown)"
	}
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:61], "") + "..."
	}
	return strconv.Quote(s)
}

func lastDot(s string) int { return strings.LastIndexByte(s, '.') }
