package manifest

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var sameManifest = cmpopts.IgnoreUnexported(Manifest{})

// FuzzDecode checks that every text is answered, and that what is accepted is
// written and read back the same.
func FuzzDecode(f *testing.F) {
	for _, in := range refusals {
		f.Add([]byte(in))
	}
	_, data := fleet(f)
	f.Add(data)
	f.Add([]byte("a: &a [*a, !!str 1, <<: {b: c}]\n? x\n: |+\n  y\n\n# z\n"))
	f.Add([]byte("{\n\t\"mesh\": \"home\",\n\t\"nodes\": [\"a\", \"\\ud83d\\ude00\"]\n}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode("f", data)
		if err != nil {
			var errs Errors
			if !errors.As(err, &errs) || len(errs) == 0 || len(errs) > MaxErrors || m != nil {
				t.Fatalf("%v beside %v", err, m)
			}
			for _, e := range errs {
				if e.Code == "" || e.Message == "" {
					t.Fatalf("no code or no message: %#v", e)
				}
			}
			return
		}
		for name, encode := range map[string]func() ([]byte, error){
			"YAML": func() ([]byte, error) { return Encode(m) },
			"JSON": func() ([]byte, error) { return json.Marshal(m) },
		} {
			out, err := encode()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			again, err := Decode("f", out)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			if diff := cmp.Diff(m, again, sameManifest); diff != "" {
				t.Fatalf("%s: %s\n%s", name, diff, out)
			}
		}
	})
}
