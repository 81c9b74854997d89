package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bindery/ledger"
)

// Kind: a whole ledger is skipped as foreign, since the file with its secret is that of
// another store, or an older one. The events are there, as the anchor or the first
// command says; another secret is used from then on, and that is told.
func TestSecretOfAnotherStore(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, p *patientStore, s *ledger.StoreID){
		"another secret": func(_ *testing.T, _ *patientStore, s *ledger.StoreID) {
			s.Secrets = ledger.Secrets{ledger.NewSecret(1)}
		},
		"another secret, and no anchor": func(t *testing.T, p *patientStore, s *ledger.StoreID) {
			s.Secrets = ledger.Secrets{ledger.NewSecret(1)}
			if err := os.RemoveAll(filepath.Join(p.env["HOME"], ".local")); err != nil {
				t.Fatal(err)
			}
		},
		"no secret": func(_ *testing.T, _ *patientStore, s *ledger.StoreID) { s.Secrets = nil },
		"one for the future": func(_ *testing.T, _ *patientStore, s *ledger.StoreID) {
			s.Secrets = ledger.Secrets{ledger.NewSecret(1000)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatientStore(t)
			p.must("node", "list", "-o", "name")
			nodes := p.out.String()
			store, _, err := ledger.ReadStoreID(p.dir)
			if err != nil {
				t.Fatal(err)
			}
			harm(t, p, &store)
			if err := ledger.WriteStoreID(p.dir, store); err != nil {
				t.Fatal(err)
			}
			p.must("audit", "verify") // what proves the record opens it in its own way
			p.must("node", "list", "-o", "name")
			if p.out.String() != nodes {
				t.Errorf("the nodes were\n%sand are\n%s", nodes, &p.out)
			}
			if name != "one for the future" && !strings.Contains(p.errs.String(), "is lost") {
				t.Errorf("nothing is told: %s", &p.errs)
			}
			p.must("node", "register", "later")
			p.must("status", "--check", "-o", "json")
			p.must("audit", "verify")
			p.must("node", "list", "-o", "name")
			if got := p.out.String(); got != nodes+"later\n" && !strings.Contains(got, "later\n") {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}
