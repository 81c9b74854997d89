package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/commands/snapshot"
)

// damageBase is the store that the cases damage copies of.
type damageBase struct {
	home, older, other string
	last               uint64
	verifier           string // of the checkpoint in home
}

// fleetOf is a manifest of n consumers: two events each.
func fleetOf(n int) string {
	var b strings.Builder
	b.WriteString(`mesh: home
provisions: {p: {scope: node}}
nodes: [alpha]
providers:
  pg-alpha: {provision: p, node: alpha, endpoint: "alpha:1"}
modules: {m: {requires: {db: p}}}
assignments:
`)
	for i := range n {
		fmt.Fprintf(&b, "  a-%05d: {module: m, node: alpha}\n", i)
	}
	return b.String()
}

// buildDamageBase makes the store: in its first block more than 5,000 events, a
// second block, and at its end commands of one event each.
func buildDamageBase(t *testing.T) *damageBase {
	b := &damageBase{}
	c := newCLI(t)
	b.home = filepath.Dir(c.store)
	c.must(t, "apply", "--init", "-q", "-f", write(t, filepath.Join(b.home, "fleet.yaml"), fleetOf(6000)))
	c.must(t, "node", "register", "beta")
	b.older = filepath.Dir(copyHome(t, b.home).store)
	for i := range 10 {
		c.must(t, "node", "register", fmt.Sprintf("n-%d", i))
	}
	key := filepath.Join(b.home, "auditor.key")
	b.verifier = strings.TrimSpace(c.must(t, "audit", "keygen", key))
	c.must(t, "audit", "checkpoint", "--key", key, "--out", filepath.Join(b.home, "home.checkpoint"))
	b.last = c.seq(t)
	if b.last < 5000 {
		t.Fatalf("the store has %d events", b.last)
	}
	snapshotOf(t, c)
	o := newCLI(t)
	o.must(t, "init", "--mesh", "other")
	b.other = filepath.Dir(o.store)
	return b
}

// copied is a case's own copy, with an anchor that says it was always there.
func (b *damageBase) copied(t *testing.T) *damaged {
	return &damaged{cli: copyHome(t, b.home), t: t, older: b.older, other: b.other}
}

// seen says what sees a damage.
type seen string

const (
	byOpening    seen = "opening"
	byVerify     seen = "`audit verify`"
	byCheckpoint seen = "`audit verify --checkpoint`"
	byNobody     seen = "nothing is lost"
)

// damageCase is one way to harm a store. do returns the first sequence that is
// wrong; 0: no event is, and what tells the server of them is.
type damageCase struct {
	what string
	by   seen
	note string // for the page
	snap bool   // the store has a snapshot of its end
	code string // of what audit verify says; "": ledger_damaged
	do   func(d *damaged, last uint64) (first uint64)
}

const mid = 3000 // a sequence in the first block

func flipping(what string, at func(onDisk) int) damageCase {
	return damageCase{what: "a bit of " + what + " flipped", by: byOpening, do: func(d *damaged, _ uint64) uint64 {
		d.flip(mid, at)
		return mid
	}}
}

// damageCases are all of them, in the order of the page.
func damageCases() []damageCase {
	return []damageCase{
		flipping("a message's length", func(r onDisk) int { return r.from + 1 }),
		flipping("its sequence", func(r onDisk) int { return r.from + 4 }),
		flipping("its time", func(r onDisk) int { return r.from + 12 }),
		flipping("the length of its subject", func(r onDisk) int { return r.from + 20 }),
		flipping("its subject", func(r onDisk) int { return r.subject + 3 }),
		flipping("the length of its headers", func(r onDisk) int { return r.headerLen }),
		flipping("its headers", func(r onDisk) int { return r.header + 30 }),
		flipping("its payload", func(r onDisk) int { return r.payload + 1 }),
		flipping("its checksum", func(r onDisk) int { return r.sum }),
		{what: "a block cut in the middle", by: byOpening, do: func(d *damaged, _ uint64) uint64 {
			d.edit(1, func(data []byte, all []onDisk) []byte { return data[:all[mid-1].from+50] })
			return mid
		}},
		{what: "the last block cut within a message", by: byOpening, do: func(d *damaged, last uint64) uint64 {
			d.edit(d.lastBlock(), func(data []byte, all []onDisk) []byte { return data[:len(data)-20] })
			return last
		}},
		{what: "the first block removed", by: byOpening, do: func(d *damaged, _ uint64) uint64 {
			d.remove(d.block(1))
			return 1
		}},
		{what: "the last block removed", by: byOpening, do: func(d *damaged, _ uint64) uint64 {
			n := d.lastBlock()
			first := d.firstOf(n)
			d.remove(d.block(n))
			return first
		}},
		{what: "the last block swapped with an older one", by: byOpening, do: func(d *damaged, last uint64) uint64 {
			n := d.lastBlock()
			old := &damaged{cli: &cli{store: filepath.Join(d.older, "store")}, t: d.t}
			data, err := os.ReadFile(old.block(n))
			if err == nil {
				err = os.WriteFile(d.block(n), data, 0o600)
			}
			if err != nil {
				d.t.Fatal(err)
			}
			return last - 9
		}},
		{what: "the server's `index.db` removed", by: byNobody, note: "the server makes it anew", do: func(d *damaged, _ uint64) uint64 {
			d.remove(filepath.Join(d.stream(), "msgs", "index.db"))
			return 0
		}},
		{what: "`index.db` removed, a bit of a payload flipped", by: byOpening, do: func(d *damaged, _ uint64) uint64 {
			d.remove(filepath.Join(d.stream(), "msgs", "index.db"))
			d.flip(mid, func(r onDisk) int { return r.payload + 1 })
			return mid
		}},
		{what: "`meta.inf` removed", by: byOpening, note: "the events are there: `audit recover` loses none", do: func(d *damaged, _ uint64) uint64 {
			d.remove(filepath.Join(d.stream(), "meta.inf"))
			return 0
		}},
		{what: "`meta.sum` removed", by: byOpening, note: "as `meta.inf`", do: func(d *damaged, _ uint64) uint64 {
			d.remove(filepath.Join(d.stream(), "meta.sum"))
			return 0
		}},
		{what: "an event edited, the server's checksum mended", by: byOpening, note: "by the chain", do: func(d *damaged, _ uint64) uint64 {
			d.edit(1, func(data []byte, all []onDisk) []byte {
				r := all[mid-1]
				at := strings.Index(string(data[r.payload:r.sum]), `"`)
				data[r.payload+at+1] ^= 4
				mend(data, r, 1)
				return data
			})
			return mid
		}},
		{what: "two events swapped, the checksums mended", by: byOpening, note: "by the chain", do: swapped},
		{what: "any of these in a file before the newest snapshot, `index.db` in its place", by: byVerify, snap: true, note: "opening does not read there", do: func(d *damaged, _ uint64) uint64 {
			d.flip(mid, func(r onDisk) int { return r.payload + 1 })
			return mid
		}},
		{what: "the end cut between two commands, after an orderly stop", by: byOpening, note: "by the anchor", do: func(d *damaged, last uint64) uint64 {
			d.edit(d.lastBlock(), func(data []byte, all []onDisk) []byte { return data[:all[len(all)-2].from] })
			return last - 1
		}},
		{what: "the whole store replaced by an older copy", by: byOpening, note: "by the anchor", do: func(d *damaged, last uint64) uint64 {
			d.put(filepath.Join(d.older, "store"), d.store)
			return last - 9
		}},
		{what: "an older copy of a store that does not say which it is", by: byOpening, note: "by the anchor of the place", do: func(d *damaged, last uint64) uint64 {
			d.put(filepath.Join(d.older, "store"), d.store)
			d.remove(filepath.Join(d.store, "store.json"))
			return last - 9
		}},
		{what: "the store and its anchor replaced by older copies", by: byCheckpoint, do: func(d *damaged, last uint64) uint64 {
			d.put(filepath.Join(d.older, "store"), d.store)
			d.put(anchorsDir(d.older), anchorsDir(d.home()))
			replaceIn(d.t, anchorsDir(d.home()), d.older, d.home())
			return last - 9
		}},
		{what: "another mesh's store put there", by: byOpening, note: "by the anchor of the place", do: func(d *damaged, _ uint64) uint64 {
			d.put(filepath.Join(d.other, "store"), d.store)
			return 1
		}},
		{what: "the store's directory gone", by: byOpening, note: "by the anchor of the place; nothing can be read, and `init` is refused", do: func(d *damaged, _ uint64) uint64 {
			d.remove(d.store)
			return 1
		}},
		{what: "`max_msgs` lowered from outside", by: byOpening, note: "the server has left out the oldest: `audit recover` finds those that are still in its files", do: func(d *damaged, _ uint64) uint64 {
			d.onServer(func(nc *nats.Conn) error { return limited(nc, 4000) })
			return 0
		}},
		{what: "a foreign message published into the stream", by: byVerify, code: "foreign_event", note: "nothing is lost: it is skipped; `status` reports it", do: func(d *damaged, last uint64) uint64 {
			d.onServer(func(nc *nats.Conn) error {
				_, err := nc.Request("bindery.home.node.somebody.else", []byte("{}"), patience)
				return err
			})
			return last + 1
		}},
	}
}

// swapped swaps two events of one length in all but their sequences and times.
func swapped(d *damaged, _ uint64) (first uint64) {
	d.edit(1, func(data []byte, all []onDisk) []byte {
		for i := mid; i+2 < len(all); i++ {
			a, b := all[i], all[i+2]
			if a.to-a.from != b.to-b.from || a.headerLen-a.from != b.headerLen-b.from || a.payload-a.from != b.payload-b.from {
				continue
			}
			kept := string(data[a.subject:a.sum])
			copy(data[a.subject:a.sum], data[b.subject:b.sum])
			copy(data[b.subject:b.sum], kept)
			mend(data, a, 1)
			mend(data, b, 1)
			first = a.seq
			return data
		}
		d.t.Fatal("no two events of one length")
		return nil
	})
	return first
}

// limited lets a stream keep n messages.
func limited(nc *nats.Conn, n int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	s, err := js.Stream(ctx, "bindery-home")
	if err != nil {
		return err
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgs, cfg.Discard = n, jetstream.DiscardOld
	_, err = js.UpdateStream(ctx, cfg)
	return err
}

// Kind: a store is harmed and nobody notices, or what is left of it is made worse
// by opening it, or sequences of acknowledged events are given out again.
func TestDamage(t *testing.T) {
	t.Parallel()
	base := buildDamageBase(t)
	for i, k := range damageCases() {
		if testing.Short() && i%4 != 1 {
			continue
		}
		t.Run(strings.ReplaceAll(k.what, "`", ""), func(t *testing.T) {
			t.Parallel()
			d := base.copied(t)
			if !k.snap {
				d.remove(filepath.Join(d.store, snapshot.Dir))
			}
			first := k.do(d, base.last)
			check(d, k, first, base)
		})
	}
}

// check holds what the program says of a damaged store against the case.
func check(d *damaged, k damageCase, first uint64, base *damageBase) {
	t := d.t
	gone := false
	if _, err := os.Stat(d.store); err != nil {
		gone = true
	}
	var before string
	if !gone {
		before = d.sums()
	}
	checkVerify(d, k, first, base)
	status := d.run(t, "status")
	add := d.run(t, "node", "register", "new-one", "-o", "json")
	if k.snap { // what reads there finds it
		if r := d.run(t, "log"); r.code != 9 || !strings.Contains(r.stderr, "ledger_damaged") {
			t.Errorf("log: exit %d, %s", r.code, r.stderr)
		}
	}
	if k.by != byOpening {
		if status.code != 0 || add.code != 0 {
			t.Fatalf("status: exit %d, a write: exit %d, want 0\n%s%s", status.code, add.code, status.stderr, add.stderr)
		}
		return
	}
	e, ok := add.refusal()
	if !ok || add.code != 9 || e.Code != "ledger_damaged" || len(e.Candidates) == 0 {
		t.Fatalf("a write: exit %d, %s%s", add.code, add.stdout, add.stderr)
	}
	if status.code != 9 || !strings.Contains(status.stderr, "ledger_damaged") {
		t.Fatalf("status: exit %d, %s%s", status.code, status.stdout, status.stderr)
	}
	if gone {
		d.refused(t, "ledger_damaged", 9, "init", "--mesh", "home")
		return
	}
	left := "mesh home at sequence"
	if first == 0 {
		left += fmt.Sprintf(" %d,", base.last) // no event is lost
	}
	if first != 1 && !strings.Contains(status.stdout, left) {
		t.Errorf("what is left cannot be read: %s%s", status.stdout, status.stderr)
	}
	if after := d.sums(); after != before {
		t.Errorf("the files of a damaged ledger were changed:\n%s\nwere\n%s", after, before)
	}
}

// checkVerify runs audit verify, and holds the first bad sequence against the case.
func checkVerify(d *damaged, k damageCase, first uint64, base *damageBase) {
	t := d.t
	t.Helper()
	var args []string
	if k.by == byCheckpoint {
		if r, v := d.verify(); r.code != 0 || !v.OK {
			t.Fatalf("without the checkpoint: exit %d, %s%s", r.code, r.stdout, r.stderr)
		}
		args = []string{"--checkpoint", filepath.Join(base.home, "home.checkpoint"), "--verifier", base.verifier}
	}
	r, v := d.verify(args...)
	switch {
	case k.by == byNobody:
		if r.code != 0 || !v.OK {
			t.Fatalf("audit verify: exit %d, %s%s", r.code, r.stdout, r.stderr)
		}
	case r.code != 9 || !strings.Contains(r.stderr, cmp.Or(k.code, "ledger_damaged")):
		t.Fatalf("audit verify: exit %d, %s%s", r.code, r.stdout, r.stderr)
	case v.OK || v.Damage == nil || v.Damage.Seq != max(first, 1):
		t.Fatalf("audit verify: the first that is wrong is %d: %s%s", max(first, 1), r.stdout, r.stderr)
	}
}

// The table in docs/damage.md is what TestDamage tries.
func TestDamagePage(t *testing.T) {
	const path, begin, end = "../docs/damage.md", "<!-- begin: damage -->\n", "<!-- end: damage -->"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the page has no place for the table")
	}
	var b strings.Builder
	b.WriteString("\n| what happened | seen first by | |\n| --- | --- | --- |\n")
	for _, k := range damageCases() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", k.what, k.by, k.note)
	}
	want := before + begin + b.String() + "\n" + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Error("the table of docs/damage.md is not what TestDamage tries: go test ./e2e -run DamagePage -update")
	}
}
