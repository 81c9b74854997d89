package commands

import (
	"fmt"
	"strings"
	"testing"
)

// A sealed reference is refused unless it names exactly the credential that is
// issued and the node where it is issued: no consumer is sent to the secret of
// another.
func TestSealedReferenceOfAnother(t *testing.T) {
	w := home(t)
	w.must(CreateAssignment{Module: "wiki", Node: "beta", Name: "shop", Bind: map[string]string{"db": "pg-alpha"}})
	g, before := w.asked("wiki/db"), w.asked("shop/db")
	name := w.sealedName("wiki/db")
	other := w.sealedName("shop/db")
	alpha, beta := w.s.Node(w.s.NodeNamed("alpha")).ID, w.s.Node(w.s.NodeNamed("beta")).ID
	if name.Maker != alpha || name.Binding == other.Binding || g == before {
		t.Fatalf("%+v, %+v", name, other)
	}
	change := func(f func(n *SealedName)) string { n := name; f(&n); return n.Ref() }
	for what, ref := range map[string]string{
		"another binding":     change(func(n *SealedName) { n.Binding = other.Binding }),
		"another generation":  change(func(n *SealedName) { n.Generation++ }),
		"another tag":         change(func(n *SealedName) { n.Tag = "01234567" }),
		"no tag":              change(func(n *SealedName) { n.Tag = "" }),
		"another node":        change(func(n *SealedName) { n.Maker = beta }),
		"another credential":  other.Ref(),
		"a whole node's id":   "sealed:" + name.Binding.String() + "/" + fmt.Sprintf("%d-%s-%s", g, name.Tag, alpha),
		"a binding in lower":  "sealed:" + strings.ToLower(name.Binding.String()) + "/" + name.Name(),
		"a maker in upper":    "sealed:" + name.Binding.String() + "/" + strings.ToUpper(name.Name()),
		"another end":         name.Ref() + "-mine",
		"an end twice":        name.Ref() + "-own-own",
		"a part before":       "sealed:x/" + name.Path(),
		"a part after":        name.Ref() + "/x",
		"a doubled slash":     strings.Replace(name.Ref(), "/", "//", 1),
		"a generation with 0": "sealed:" + name.Binding.String() + "/0" + name.Name(),
		"no name":             "sealed:" + name.Binding.String(),
		"what it is not":      "sealed:pg-alpha/wiki-33",
	} {
		c := IssueCredential{Slot: "wiki/db", Generation: g, SecretRef: ref}
		r := w.refused(SecretRefForeign, c)
		if !strings.Contains(r.Fix.String(), name.Ref()) || r.Code.Exit() != ExitRefused {
			t.Errorf("%s: %+v", what, r)
		}
		c.Node = "alpha" // as its agent says it
		w.refused(SecretRefForeign, c)
	}
	w.must(IssueCredential{Slot: "wiki/db", Generation: g, SecretRef: name.Ref()})
	other.Own = true // its hook chose the login name
	w.must(IssueCredential{Slot: "shop/db", Generation: before, SecretRef: other.Ref(), Node: "alpha"})
	w.replay()
}

// Where the provider has moved, the new node's agent is the maker; the old one's
// reference is refused. That of an embedded instance is the consumer's node.
func TestSealedReferenceAfterAMove(t *testing.T) {
	w := home(t)
	g, old := w.asked("wiki/db"), w.sealedName("wiki/db")
	w.must(RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "b:1"})
	w.refused(SecretRefForeign, IssueCredential{Slot: "wiki/db", Generation: g, SecretRef: old.Ref()})
	w.refused(ProviderMoved, IssueCredential{Slot: "wiki/db", Generation: g, SecretRef: old.Ref(), Node: "alpha"})
	w.must(IssueCredential{Slot: "wiki/db", Generation: g, SecretRef: w.sealedName("wiki/db").Ref(), Node: "beta"})

	w.must(CreateAssignment{Module: "photos", Node: "beta"})
	n := w.sealedName("photos/db")
	if n.Maker != w.s.Node(w.s.NodeNamed("beta")).ID {
		t.Fatalf("%+v", n)
	}
	w.must(IssueCredential{Slot: "photos/db", Generation: w.asked("photos/db"), SecretRef: n.Ref()})

	// An ask that was withdrawn while it was answered is held against the same.
	g, asked := w.asksAgain("wiki/db"), w.sealedName("wiki/db")
	w.because("again", RequestCredential{"wiki/db"})
	w.refused(SecretRefForeign, IssueCredential{Slot: "wiki/db", Generation: g, SecretRef: n.Ref()})
	w.must(IssueCredential{Slot: "wiki/db", Generation: g, SecretRef: asked.Ref()})
	w.replay()
}

// asksAgain asks for another credential of a slot and returns its generation.
func (w *world) asksAgain(path string) uint64 {
	w.t.Helper()
	w.because("another one", RequestCredential{path})
	return w.asked(path)
}

// sealedName is the name of the secret that answers a slot's open ask.
func (w *world) sealedName(path string) SealedName {
	w.t.Helper()
	f, err := Finder{w.s}.Slot(path)
	if err != nil {
		w.t.Fatal(err)
	}
	c, ok := w.s.Ask(f.Binding)
	if !ok {
		w.t.Fatalf("%s has no open ask", path)
	}
	return Finder{w.s}.sealedNames(&c)[0]
}
