package e2e

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats.go"

	"bindery/commands/snapshot"
	"bindery/ledger"
	"bindery/projections"
)

// A damaged store is a copy of one of more than 5,000 events, with its anchor.
type damaged struct {
	*cli
	t     *testing.T
	older string // the home of the same store of before
	other string // the home of another mesh's store
}

// anchorsDir is where the anchors of a home are.
func anchorsDir(home string) string {
	return filepath.Join(home, ".local", "state", "bindery", "anchors")
}

// copyHome copies a store that is closed, and its anchor, to another place: as if
// it had always been there.
func copyHome(t testing.TB, from string) *cli {
	t.Helper()
	home := t.TempDir()
	if err := os.CopyFS(home, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	replaceIn(t, anchorsDir(home), from, home)
	return &cli{store: filepath.Join(home, "store")}
}

// replaceIn replaces a text in all files of a directory.
func replaceIn(t testing.TB, dir, old, with string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(strings.ReplaceAll(string(data), old, with)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (d *damaged) home() string { return filepath.Dir(d.store) }

// stream is the directory of the ledger's stream.
func (d *damaged) stream() string {
	return filepath.Join(d.store, "jetstream", "$G", "streams", "bindery-home")
}

func (d *damaged) block(n int) string {
	return filepath.Join(d.stream(), "msgs", fmt.Sprintf("%d.blk", n))
}

// remove removes a file or a directory that is there.
func (d *damaged) remove(path string) {
	d.t.Helper()
	if _, err := os.Stat(path); err != nil {
		d.t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		d.t.Fatal(err)
	}
}

// put puts a copy of a directory in the place of another.
func (d *damaged) put(from, to string) {
	d.t.Helper()
	d.remove(to)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		d.t.Fatal(err)
	}
}

// onDisk are the places of the parts of a record in its block.
type onDisk struct {
	seq                                       uint64
	from, subject, headerLen, header, payload int
	sum, to                                   int
}

// records reads where the records of a block lie: apart from what the program
// does, as nats-server 2.15 writes them.
func records(t testing.TB, data []byte) []onDisk {
	t.Helper()
	var out []onDisk
	for at := 0; at < len(data); {
		length := binary.LittleEndian.Uint32(data[at:])
		if length&(1<<31) == 0 {
			t.Fatalf("the record at %d has no headers", at)
		}
		r := onDisk{from: at, seq: binary.LittleEndian.Uint64(data[at+4:]), subject: at + 22, to: at + int(length&^(1<<31))}
		r.headerLen = r.subject + int(binary.LittleEndian.Uint16(data[at+20:]))
		r.header = r.headerLen + 4
		r.payload = r.header + int(binary.LittleEndian.Uint32(data[r.headerLen:]))
		r.sum = r.to - 8
		out = append(out, r)
		at = r.to
	}
	return out
}

// edit changes a block: f gets its bytes, and where its records lie.
func (d *damaged) edit(n int, f func(data []byte, all []onDisk) []byte) {
	d.t.Helper()
	data, err := os.ReadFile(d.block(n))
	if err != nil {
		d.t.Fatal(err)
	}
	data = f(data, records(d.t, data))
	if err := os.WriteFile(d.block(n), data, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// flip flips one bit of the record of a sequence in the first block.
func (d *damaged) flip(seq uint64, at func(onDisk) int) {
	d.t.Helper()
	d.edit(1, func(data []byte, all []onDisk) []byte {
		data[at(all[seq-1])] ^= 4
		return data
	})
}

// mend writes the checksum that the server would have written.
func mend(data []byte, r onDisk, block int) {
	key := sha256.Sum256(fmt.Appendf(nil, "bindery-home-%d", block))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	_, _ = h.Write(data[r.from+4 : r.from+20])
	_, _ = h.Write(data[r.subject:r.headerLen])
	_, _ = h.Write(data[r.header:r.sum])
	copy(data[r.sum:r.to], h.Sum(nil))
}

// lastBlock is the number of the last block.
func (d *damaged) lastBlock() int {
	d.t.Helper()
	paths, err := filepath.Glob(strings.ReplaceAll(filepath.Join(d.stream(), "msgs"), "[", "\\[") + "/*.blk")
	if err != nil || len(paths) < 2 {
		d.t.Fatalf("%d blocks: %v", len(paths), err)
	}
	return len(paths)
}

// firstOf is the first sequence of a block.
func (d *damaged) firstOf(block int) uint64 {
	d.t.Helper()
	data, err := os.ReadFile(d.block(block))
	if err != nil {
		d.t.Fatal(err)
	}
	return records(d.t, data)[0].seq
}

// onServer runs f on a server on the store, past everything bindery does.
func (d *damaged) onServer(f func(nc *nats.Conn) error) {
	d.t.Helper()
	srv, err := ledger.StartEmbedded(d.t.Context(), ledger.EmbeddedConfig{Dir: d.store})
	if err != nil {
		d.t.Fatal(err)
	}
	defer srv.Close()
	nc, err := srv.Connect()
	if err != nil {
		d.t.Fatal(err)
	}
	defer nc.Close()
	if err := f(nc); err != nil {
		d.t.Fatal(err)
	}
}

// sums are the digests of the files of the ledger's stream, but for what the
// server makes anew by itself whenever it stops.
func (d *damaged) sums() string {
	d.t.Helper()
	var out []string
	err := filepath.WalkDir(filepath.Join(d.store, "jetstream"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "index.db" {
			return err
		}
		data, err := os.ReadFile(path)
		sum := sha256.Sum256(data)
		rel, _ := filepath.Rel(d.store, path)
		out = append(out, rel+" "+hex.EncodeToString(sum[:8]))
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// verdict is what audit verify prints.
type verdict struct {
	Seq     uint64 `json:"seq"`
	Foreign uint64 `json:"foreign"`
	OK      bool   `json:"ok"`

	Recoveries []struct{} `json:"recoveries"`

	Damage *struct {
		Seq uint64 `json:"seq"`
		Why string `json:"why"`
	} `json:"damage"`
}

// verify runs audit verify.
func (d *damaged) verify(args ...string) (ran, verdict) {
	d.t.Helper()
	r := d.run(d.t, append([]string{"audit", "verify", "-o", "json"}, args...)...)
	var v verdict
	if r.stdout != "" {
		if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
			d.t.Fatalf("%s: %v\n%s", r, err, r.stdout)
		}
	}
	return r, v
}

// snapshotOf leaves a snapshot of a store's end in it.
func snapshotOf(t testing.TB, c *cli) {
	t.Helper()
	n, err := openNode(t.Context(), c.store)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	store, _, err := ledger.ReadStoreID(c.store)
	if err != nil {
		t.Fatal(err)
	}
	n.h.View(func(s *projections.State) {
		err = snapshot.In(filepath.Join(c.store, snapshot.Dir), nil).SealWith(store.Secrets).Write(s)
	})
	if err != nil {
		t.Fatal(err)
	}
}
