package commands

import (
	"fmt"
	"slices"
	"strings"

	"bindery/events"
	"bindery/projections"
)

// fields collects what became of an object's fields.
type fields struct {
	a      *applier
	object string
	result int
	detail []string
}

func (a *applier) fields(object string) *fields { return &fields{a: a, object: object} }

func (f *fields) note(result, format string, args ...any) {
	f.result = max(f.result, slices.Index(results, result))
	if format != "" {
		f.detail = append(f.detail, fmt.Sprintf(format, args...))
	}
}

func (f *fields) done() {
	f.a.objects = append(f.a.objects, Object{f.object, results[f.result], strings.Join(f.detail, "; ")})
}

// differs compares the three values of a field and reports whether the
// manifest's is to be written. show turns a value into what people read.
func (f *fields) differs(field, want, have string, base projections.Base, show func(string) string) bool {
	if want == have {
		return false
	}
	if show == nil {
		show = orEmpty
	}
	switch {
	case base.Known && base.Value == want:
		f.note(Kept, "%s %s (by %s, sequence %d)", field, show(have), base.By, base.Seq)
		return false
	case f.a.c.TakeOver || base.Known && base.Value == have:
		f.note(Changed, "%s %s → %s", field, show(have), show(want))
		return true
	}
	why := fmt.Sprintf("%s: manifest %s, ledger %s", field, show(want), show(have))
	if base.Known {
		why += fmt.Sprintf(" (by %s, sequence %d; last manifest %s)", base.By, base.Seq, show(base.Value))
	} else {
		why += " (never from a manifest)"
	}
	f.a.conflicts = append(f.a.conflicts, Candidate{Name: f.object, Why: why})
	return false
}

func orEmpty(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// nameOf shows an id as a name.
func (a *applier) nameOf(text string) string {
	id, err := events.ParseID(text)
	if err != nil {
		return orEmpty(text)
	}
	return a.NameOf(id)
}

// gone notes an object that a manifest created and a command ended: a manifest
// that still has it says nothing new. --take-over makes it anew.
func (f *fields) gone(entity events.Entity, name, how string) bool {
	g, ok := f.a.Gone(entity, name)
	if !ok || f.a.c.TakeOver {
		return false
	}
	f.note(Kept, "%s (by %s, sequence %d)", how, g.By, g.Seq)
	return true
}
