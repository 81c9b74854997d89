package handler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

// copyOf is a request as a client sends it again that heard nothing.
func copyOf(c commands.Command, invocation string) commands.Request {
	r := request(c)
	r.Invocation = invocation
	return r
}

func codeOf(err error) commands.Code {
	var r *commands.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

func seqOf(h *Handler) (seq uint64) {
	h.View(func(s *projections.State) { seq = s.Seq })
	return seq
}

// Kind: a command is refused, and carried out. The copies of one request are told the
// same, whatever has changed between them; the same command given later is decided anew.
func TestCopiesAreToldTheSame(t *testing.T) {
	h := open(t, Config{Log: newStore(t).log})
	must(t, h, commands.RegisterNode{Name: "alpha"})
	first := copyOf(commands.RegisterNode{Name: "alpha"}, "one")
	if _, err := h.Do(t.Context(), first); codeOf(err) != commands.NameTaken {
		t.Fatal(err)
	}
	must(t, h, commands.RetireNode{Node: "alpha"})
	before := seqOf(h)
	if _, err := h.Do(t.Context(), first); codeOf(err) != commands.NameTaken || seqOf(h) != before {
		t.Errorf("the copy: %v, at %d, before %d", err, seqOf(h), before)
	}
	later := first
	later.Invocation = "two"
	if r, err := h.Do(t.Context(), later); err != nil || !r.Changed {
		t.Errorf("given again later: %+v, %v", r, err)
	}
	// What was carried out is known by its id, whoever asks.
	if r, err := h.Do(t.Context(), later); err != nil || !r.Repeated {
		t.Errorf("carried out, and asked again: %+v, %v", r, err)
	}
}

// The same for what changes nothing, and for what would be done.
func TestCopiesOfWhatChangesNothing(t *testing.T) {
	h := open(t, Config{Log: newStore(t).log})
	must(t, h, commands.RegisterNode{Name: "alpha"}, commands.DefineProvision{Name: "pg", Scope: events.ScopeNode},
		commands.RegisterProvider{Name: "p", Provision: "pg", Node: "alpha", Endpoint: "a:1"}, commands.CordonProvider{Provider: "p"})
	cordon := copyOf(commands.CordonProvider{Provider: "p"}, "one")
	dry := copyOf(commands.RegisterNode{Name: "beta"}, "dry")
	dry.DryRun = true
	for range 2 {
		if r, err := h.Do(t.Context(), cordon); err != nil || r.Changed {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err := h.Do(t.Context(), dry); err != nil || !r.DryRun || len(r.Events) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		must(t, h, commands.UncordonProvider{Provider: "p"})
	}
}

// Kind: an answer that is another request's. Somebody who uses a text twice is told what
// each of his requests came to.
func TestAnotherRequestIsNoCopy(t *testing.T) {
	h := open(t, Config{Log: newStore(t).log})
	must(t, h, commands.RegisterNode{Name: "alpha"})
	refused := copyOf(commands.RegisterNode{Name: "alpha"}, "one")
	if _, err := h.Do(t.Context(), refused); codeOf(err) != commands.NameTaken {
		t.Fatal(err)
	}
	other := refused
	other.Command = commands.RegisterNode{Name: "beta"}
	other.DryRun = true
	if r, err := h.Do(t.Context(), other); err != nil || !r.DryRun {
		t.Errorf("another command: %+v, %v", r, err)
	}
	other.DryRun = false
	if r, err := h.Do(t.Context(), other); err != nil || r.DryRun || !r.Changed {
		t.Errorf("the command after its dry run: %+v, %v", r, err)
	}
}

// Copies that are decided in one group, with what changes the state between them.
func TestCopiesInOneGroup(t *testing.T) {
	h := open(t, Config{Log: newStore(t).log})
	for round := range 50 {
		name := fmt.Sprintf("n%d", round)
		must(t, h, commands.RegisterNode{Name: name})
		again := copyOf(commands.RegisterNode{Name: name}, "x")
		heard := make(chan error, 3)
		for _, r := range []commands.Request{again, request(commands.RetireNode{Node: name}), again} {
			h.Submit(t.Context(), r, func(_ commands.Result, err error) { heard <- err })
		}
		refused := 0
		for range 3 {
			if err := <-heard; codeOf(err) == commands.NameTaken {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if refused != 2 {
			t.Fatalf("round %d: %d copies of two were refused", round, refused)
		}
	}
}

// What is kept is bounded, and is a key's own.
func TestToldIsBounded(t *testing.T) {
	var told told
	now := time.Now()
	refused := func(key, text string) *call {
		return &call{req: commands.Request{Key: key, Invocation: text}, err: &commands.Refusal{Code: commands.NameTaken}}
	}
	for i := range 5 * mostTold {
		told.note(refused("ann", fmt.Sprint(i)), now)
	}
	if n := len(told.now) + len(told.before); n > 2*mostTold+2 {
		t.Errorf("%d are kept", n)
	}
	told.note(refused("ann", "mine"), now)
	if told.again(&call{req: commands.Request{Key: "eve", Invocation: "mine"}}) {
		t.Error("another key is told what was told to one")
	}
	if !told.again(&call{req: commands.Request{Key: "ann", Invocation: "mine"}}) {
		t.Error("its own is not known")
	}
	told.note(refused("ann", "a minute later"), now.Add(2*toldFor))
	told.note(refused("ann", "two"), now.Add(4*toldFor))
	if told.again(&call{req: commands.Request{Key: "ann", Invocation: "mine"}}) {
		t.Error("it is known after minutes")
	}
	for _, err := range []error{&commands.Refusal{Code: commands.OutcomeUnknown}, &NotWriterError{}, errors.New("x")} {
		c := &call{req: commands.Request{Key: "ann", Invocation: "unsettled"}, err: err}
		if told.note(c, now); told.again(&call{req: c.req}) {
			t.Errorf("%v is told again", err)
		}
	}
}
