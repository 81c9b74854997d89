package events

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"unicode/utf8"
)

// What Decode takes, Encode writes again with the same subject and headers.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/golden/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !bytes.Contains(b, []byte("\n\n")) {
			return
		}
		head, _, _ := bytes.Cut(b, []byte("\n\n"))
		if !regexp.MustCompile(`(?m)^sequence: [0-9]{1,18}$`).Match(head) || bytes.Count(head, []byte("sequence: ")) > 1 {
			return
		}
		r := parseText(t, b)
		e, err := Decode(&r)
		if err != nil {
			return
		}
		again := e
		out, err := again.Encode(Chain{})
		if errors.Is(err, ErrSecret) || e.Seq == 0 || e.Time.IsZero() {
			return // refused to a writer, yet readable
		}
		if err != nil {
			t.Fatalf("decoded, but: %v", err)
		}
		if out.Subject != r.Subject {
			t.Errorf("subject %q became %q", r.Subject, out.Subject)
		}
		for name := range out.Header {
			if name != hChain && out.Get(name) != r.Get(name) {
				t.Errorf("header %s: %q became %q", name, r.Get(name), out.Get(name))
			}
		}
		if _, err := Decode(&out); err != nil {
			t.Errorf("encoded, but: %v", err)
		}
	})
}

func FuzzParseSubject(f *testing.F) {
	f.Add("bindery.demo.provider." + providerID.String() + ".relocated")
	f.Add("bindery.demo.provider." + providerID.String() + ".")
	f.Add("bindery.>")
	f.Add("....")
	f.Fuzz(func(t *testing.T, s string) {
		mesh, typ, id, err := ParseSubject(s)
		if err == nil && SubjectFor(mesh, typ, id) != s {
			t.Errorf("%q is taken as %q", s, SubjectFor(mesh, typ, id))
		}
	})
}

func FuzzPercentDecode(f *testing.F) {
	for _, s := range []string{"", "alice", "Zo%C3%AB", "%", "%4", "%41", "%c3%ab", "a b", "\xff", "%25%20%22"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := percentDecode(s); err == nil && percentEncode(got) != s {
			t.Errorf("%q is taken for %q, which is written %q", s, got, percentEncode(got))
		}
		if got, err := percentDecode(percentEncode(s)); err != nil || got != s {
			t.Errorf("%q came back as %q, %v", s, got, err)
		}
	})
}

func FuzzCheckEndpoint(f *testing.F) {
	for _, s := range []string{"pg:5432", "[::1]:1", "https://u:p@x/", "https://x:8443/a?b#c", "[x]:1", "://", "https://[::1%25en0]/"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*://([a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\])(:[1-9][0-9]*)?(/[!-~]*)?|([a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\]):[1-9][0-9]*)$`)
	f.Fuzz(func(t *testing.T, s string) {
		err := CheckEndpoint(s)
		if err == nil && (!form.MatchString(s) || len(s) > MaxEndpoint || CheckNoSecret(s) != nil) {
			t.Errorf("%q is taken", s)
		}
		if err != nil && !utf8.ValidString(err.Error()) {
			t.Errorf("%q: message %q", s, err)
		}
	})
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"pg-a", "PG-A", "a-", "", ">", "pgä", "all"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	f.Fuzz(func(t *testing.T, s string) {
		err := CheckName(s)
		if want := form.MatchString(s) && s[len(s)-1] != '-' && !reservedNames[s]; (err == nil) != want {
			t.Errorf("%q: %v, want a name: %t", s, err, want)
		}
		var ne *NameError
		if errors.As(err, &ne) && ne.Suggest != "" && CheckName(ne.Suggest) != nil {
			t.Errorf("%q: the suggestion %q is no name", s, ne.Suggest)
		}
	})
}
