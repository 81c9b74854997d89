package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Kind: what cannot be read is waited for. A log whose last block was cut while
// its index still speaks of what was there is damaged, whatever the length of
// the cut, and says so instead of waiting.
func TestCutBlock(t *testing.T) {
	for _, cut := range []int64{1, 300, 4000, 20000} {
		dir := t.TempDir()
		s := startStore(t, dir)
		l := mustCreate(t, s)
		w := newWriter()
		if _, err := l.Append(ctxT(t), 0, w.commands(slices.Repeat([]int{1}, 60)...)); err != nil {
			t.Fatal(err)
		}
		last, err := l.Last(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		s.stop()
		blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
		if err != nil || len(blocks) != 1 {
			t.Fatalf("blocks %v, %v", blocks, err)
		}
		fi, err := os.Stat(blocks[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(blocks[0], fi.Size()-cut); err != nil {
			t.Fatal(err)
		}
		s = startStore(t, dir)
		l, err = Open(ctxT(t), s.nc, testMesh)
		if err != nil {
			t.Fatal(err)
		}
		l.tun.watch = 50 * time.Millisecond
		now, err := l.Last(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		var read uint64
		for cmd, err2 := range l.Read(ctxT(t), Position{}, now) {
			if err = err2; err == nil {
				read = cmd[len(cmd)-1].Seq
			}
		}
		var damage *DamageError
		switch {
		case now < last: // the server noticed and cut its log: only an anchor can tell
			if err != nil && !errors.As(err, &damage) {
				t.Errorf("cut by %d: %v", cut, err)
			}
		case !errors.As(err, &damage):
			t.Errorf("cut by %d: read to %d of %d, %v", cut, read, last, err)
		}
		t.Logf("cut by %d: the server ends at %d of %d; read to %d, %v", cut, now, last, read, err)
		s.stop()
	}
}
