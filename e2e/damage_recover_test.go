package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// smallBase is a store of a few commands, its anchor at its end, and a cursor of
// who has seen all of it.
func smallBase(t *testing.T) *damageBase {
	c := newCLI(t)
	home := filepath.Dir(c.store)
	c.must(t, "apply", "--init", "-q", "-f", write(t, filepath.Join(home, "fleet.yaml"), fleetOf(20)))
	for _, n := range []string{"beta", "gamma", "delta"} {
		c.must(t, "node", "register", n)
	}
	s := c.serve(t)
	c.must(t, "watch", "--once", "--cursor", filepath.Join(home, "cursor"))
	s.stop(t, syscall.SIGTERM)
	return &damageBase{home: home, last: c.seq(t)}
}

// recovered is the JSON of a recovery.
type recovered struct {
	Seq    uint64 `json:"seq"`
	Events []struct {
		Type string `json:"type"`
		Data struct {
			AnchorSeq uint64 `json:"anchor_seq"`
			FoundSeq  uint64 `json:"found_seq"`
		} `json:"data"`
	} `json:"events"`
}

// recovery is a loss, and what is to be left after it.
type recovery struct {
	name  string
	do    func(d *damaged)
	found uint64 // the last event that is left
	kept  bool   // the files of before are kept
}

// Kind: what goes on after a loss goes on from something else than what was said,
// throws the evidence away, or is not noticed by who has seen what is lost.
func TestRecover(t *testing.T) {
	t.Parallel()
	base := smallBase(t)
	last := base.last
	for _, k := range []recovery{
		{"the end is cut", func(d *damaged) {
			d.edit(1, func(data []byte, all []onDisk) []byte { return data[:all[len(all)-2].from] })
		}, last - 2, false},
		{"a payload is flipped", func(d *damaged) { d.flip(last-2, func(r onDisk) int { return r.payload + 1 }) }, last - 3, true},
		{"the description is lost", func(d *damaged) { d.remove(filepath.Join(d.stream(), "meta.inf")) }, last, true},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := base.copied(t)
			k.do(d)
			k.recover(d, last)
			k.goesOn(d, last)
		})
	}
	t.Run("nothing is lost", func(t *testing.T) {
		base.copied(t).refused(t, "nothing_lost", 4, "audit", "recover", "--accept-loss", "--reason", "x")
	})
}

// recover accepts the loss; short of that nothing is changed.
func (k recovery) recover(d *damaged, last uint64) {
	t := d.t
	t.Helper()
	// What is asked for that is not in what is left is not said to be nowhere, and what
	// what is left would refuse is not said to be refused for that.
	for _, args := range [][]string{{"provider", "show", "nobody"}, {"history", "nobody/db"}, {"node", "register", "beta"}, {"node", "show", "beta", "--as-of", "seq:99999"}} {
		d.refused(t, "ledger_damaged", 9, args...)
	}
	before := d.sums()
	args := []string{"audit", "recover", "--reason", "the disk died"}
	d.refused(t, "ledger_damaged", 9, args...)
	d.refused(t, "reason_required", 2, "audit", "recover", "--accept-loss")
	told := d.run(t, append(args, "--accept-loss", "--dry-run")...)
	want := fmt.Sprintf("it goes on from sequence %d; what is lost is ", k.found)
	if k.found == last {
		want = fmt.Sprintf("no event is lost: all of them are there, up to sequence %d", last)
	}
	if told.code != 0 || !strings.Contains(told.stderr, want) {
		t.Errorf("%s is not told: %s%s", want, told.stdout, told.stderr)
	}
	if after := d.sums(); after != before {
		t.Fatalf("looking at the loss has changed the files:\n%s\nwere\n%s", after, before)
	}
	r := read[recovered](t, d.cli, append(args, "--accept-loss")...)
	if k.found == last {
		if len(r.Events) != 0 || r.Seq != last {
			t.Fatalf("recovered: %+v, and nothing was lost", r)
		}
		return
	}
	if len(r.Events) != 1 || r.Events[0].Type != "bindery.mesh.recovered.v1" || r.Seq != k.found+1 ||
		r.Events[0].Data.FoundSeq != k.found || r.Events[0].Data.AnchorSeq != last {
		t.Fatalf("recovered: %+v, want after %d of %d", r, k.found, last)
	}
}

// goesOn looks whether the ledger does, and what is left of before.
func (k recovery) goesOn(d *damaged, last uint64) {
	t := d.t
	t.Helper()
	lost := k.found < last
	want := last
	if lost {
		want = k.found + 1
	}
	if r, v := d.verify(); r.code != 0 || v.Seq != want || lost != (len(v.Recoveries) == 1) {
		t.Fatalf("audit verify: exit %d, %s%s", r.code, r.stdout, r.stderr)
	}
	d.must(t, "node", "register", "epsilon")
	d.refused(t, "nothing_lost", 4, "audit", "recover", "--accept-loss", "--reason", "again")
	old, err := filepath.Glob(filepath.Join(anchorsDir(d.home()), "*.lost"))
	if err != nil || lost != (len(old) == 1) {
		t.Fatalf("anchors that are kept: %q, %v", old, err)
	}
	for _, path := range old {
		if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), fmt.Sprintf(`"seq":%d`, last)) {
			t.Errorf("the anchor that is kept: %s, %v", data, err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(d.store, "lost", "*", "jetstream"))
	if k.kept != (len(files) == 1) {
		t.Errorf("files that are kept: %q", files)
	}
	s := d.serve(t)
	defer s.stop(t, syscall.SIGTERM)
	cursor := filepath.Join(d.home(), "cursor")
	if !lost {
		d.must(t, "watch", "--once", "--cursor", cursor)
		return
	}
	d.refused(t, "ledger_restored", 9, "watch", "--once", "--cursor", cursor)
}
