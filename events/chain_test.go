package events

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// flip changes one bit of s.
func flip(t *rapid.T, s, what string) string {
	b := []byte(s)
	i := rapid.IntRange(0, len(b)*8-1).Draw(t, "bit of "+what)
	b[i/8] ^= 1 << (i % 8)
	return string(b)
}

func TestChainCoversEveryBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(samples()).Draw(t, "payload")
		e := sample(p)
		r, err := e.Encode(Chain{1})
		if err != nil {
			t.Fatal(err)
		}
		r.Header["ce-later"] = []string{"x"}
		prev, mesh, base := Chain{1}, e.Mesh, Chain{1}.Link(e.Mesh, &r)
		names := slices.DeleteFunc(sortedKeys(r.Header), func(n string) bool { return n == hChain })
		switch part := rapid.SampledFrom(append(names, "subject", "payload", "sequence", "previous", "mesh", "name")).Draw(t, "part"); part {
		case "subject":
			r.Subject = flip(t, r.Subject, part)
		case "payload":
			r.Data = []byte(flip(t, string(r.Data), part))
		case "sequence":
			r.Seq ^= 1 << rapid.IntRange(0, 63).Draw(t, part)
		case "previous":
			prev = Chain([]byte(flip(t, string(prev[:]), part)))
		case "mesh":
			mesh = ID([]byte(flip(t, string(mesh[:]), part)))
		case "name": // a header under another name, even one outside the event
			name := rapid.SampledFrom(names).Draw(t, "header")
			v := r.Header[name]
			delete(r.Header, name)
			r.Header[flip(t, name, part)] = v
		default:
			r.Header[part] = []string{flip(t, r.Header[part][0], part)}
		}
		if prev.Link(mesh, &r) == base {
			t.Fatalf("not covered:\n%s", text(&r))
		}
	})
}

func TestChainHeaders(t *testing.T) {
	e, r := encoded(t, boundSample())
	prev := Chain{}
	base := prev.Link(e.Mesh, &r)
	same := func(what string, want bool, change func(*Record)) {
		t.Helper()
		r := clone(r)
		change(&r)
		if got := prev.Link(e.Mesh, &r) == base; got != want {
			t.Errorf("%s: the same value: %t, want %t", what, got, want)
		}
	}
	same("a server's header", true, func(r *Record) { r.Header["Nats-Expected-Last-Sequence"] = []string{"1"} })
	same("another prefix", true, func(r *Record) { r.Header["Ce-actor"] = []string{"x"} })
	same("another ce-chain", true, func(r *Record) { r.Header[hChain] = []string{"x"} })
	same("no ce-chain", true, func(r *Record) { delete(r.Header, hChain) })
	same("a name without a value", true, func(r *Record) { r.Header["ce-later"] = nil })
	same("an unknown one", false, func(r *Record) { r.Header["ce-later"] = []string{""} })
	same("an unknown one, first in order", false, func(r *Record) { r.Header["ce-aa"] = []string{"x"} })
	same("one more value", false, func(r *Record) { r.Header[hActor] = append(slices.Clone(r.Header[hActor]), "bob") })
	same("one less", false, func(r *Record) { delete(r.Header, hBatch) })
	same("values of two exchanged", false, func(r *Record) {
		r.Header[hID], r.Header[hCommand] = r.Header[hCommand], r.Header[hID]
	})
	same("a border moved", false, func(r *Record) {
		r.Subject, r.Data = r.Subject+string(r.Data[:1]), r.Data[1:]
	})
	// Unknown ones are sorted in among the known, whatever the map's order.
	r.Header["ce-aa"], r.Header["ce-zz"], r.Header["ce-m"] = []string{"1"}, []string{"2"}, []string{"3", "4"}
	mixed := prev.Link(e.Mesh, &r)
	for range 20 {
		if r := clone(r); prev.Link(e.Mesh, &r) != mixed {
			t.Fatal("the value depends on the order of a map")
		}
	}
	if long := clone(r); true {
		long.Data = []byte(strings.Repeat("x", 100_000))
		if prev.Link(e.Mesh, &long) == mixed {
			t.Error("a long payload gives the value of a short one")
		}
	}
}

func TestVerify(t *testing.T) {
	root, first := encoded(t, &MeshCreated{Name: testMesh})
	e, r := encoded(t, boundSample())
	if c, err := Verify(Chain{}, ID{}, &first); err != nil || c != root.Chain {
		t.Errorf("the first: %v, %v", c, err)
	}
	if c, err := Verify(root.Chain, meshID, &r); err != nil || c != e.Chain {
		t.Errorf("the second: %v, %v", c, err)
	}
	if id, err := MeshOf(&r); err != nil || id != meshID {
		t.Errorf("MeshOf: %v, %v", id, err)
	}
	for what, change := range map[string]func(*Record){
		"edited":      func(r *Record) { r.Data = []byte(strings.Replace(string(r.Data), "db", "dc", 1)) },
		"moved":       func(r *Record) { r.Seq++ },
		"no chain":    func(r *Record) { delete(r.Header, hChain) },
		"upper case":  func(r *Record) { r.Header[hChain] = []string{strings.ToUpper(r.Header[hChain][0])} },
		"two chains":  func(r *Record) { r.Header[hChain] = append(slices.Clone(r.Header[hChain]), "x") },
		"other chain": func(r *Record) { r.Header[hChain] = []string{strings.Repeat("0", 64)} },
	} {
		bad := clone(r)
		change(&bad)
		if _, err := Verify(root.Chain, meshID, &bad); !errors.Is(err, ErrChain) {
			t.Errorf("%s: %v, want ErrChain", what, err)
		}
	}
	if _, err := Verify(Chain{}, meshID, &r); !errors.Is(err, ErrChain) {
		t.Errorf("without its predecessor: %v", err)
	}
	if _, err := Verify(root.Chain, nodeID, &r); !errors.Is(err, ErrChain) {
		t.Errorf("in another mesh: %v", err)
	}
	bad := clone(first)
	bad.Header[hSource] = []string{"/x"}
	if _, err := Verify(Chain{}, ID{}, &bad); !errors.Is(err, ErrChain) {
		t.Errorf("without a source: %v", err)
	}
}
