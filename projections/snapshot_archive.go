package projections

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"maps"
	"slices"
	"time"

	"bindery/events"
)

// An archive takes the fields of a state to bytes, or from bytes: the same list of
// fields serves both ways, so that what is saved is what is loaded. Numbers are
// varints (encoding/binary), ids and hashes their bytes, texts and lists have their
// length before them. The first error stays; after it everything loaded is zero.
type archive struct {
	saving bool
	w      io.Writer
	r      io.Reader
	buf    []byte // to be written; or read
	at     int    // loading: how much of buf is taken
	ended  bool   // loading: r has no more
	sum    hash.Hash
	err    error

	counts [tables]uint32 // of values; what a reference may be at most
	texts  *texts         // what the secret references of credentials stand in
}

// table is what a reference refers to: first the kinds, in their order.
type table uint8

const (
	tNode table = iota
	tProvision
	tProvider
	tModule
	tAssignment
	tBinding
	tOverride
	tRotation
	tGrant
	tCredential
	tSlotName // from 0 on, the others from 1
	tables
)

const (
	archiveBuffer = 1 << 16
	// maxText is the longest text in bytes; no event is longer.
	maxText = 16 << 20
	// maxTextRef is the longest one that texts keep.
	maxTextRef = 255
)

func newArchive(w io.Writer, r io.Reader) *archive {
	return &archive{saving: w != nil, w: w, r: r, sum: sha256.New(), buf: make([]byte, 0, archiveBuffer+binary.MaxVarintLen64)}
}

func (x *archive) fail(why string) {
	if x.err == nil {
		x.err = &SnapshotError{why}
	}
}

// flush writes what is saved.
func (x *archive) flush() {
	if x.err == nil {
		x.sum.Write(x.buf)
		_, x.err = x.w.Write(x.buf)
	}
	x.buf = x.buf[:0]
}

func (x *archive) put(b []byte) {
	x.buf = append(x.buf, b...)
	if len(x.buf) >= archiveBuffer {
		x.flush()
	}
}

// more reads until n bytes are there to be taken, or fewer at the end.
func (x *archive) more(n int) {
	x.sum.Write(x.buf[:x.at])
	x.buf = append(x.buf[:0], x.buf[x.at:]...)
	x.at = 0
	for len(x.buf) < n && !x.ended {
		if len(x.buf) == cap(x.buf) {
			x.buf = slices.Grow(x.buf, archiveBuffer)
		}
		got, err := x.r.Read(x.buf[len(x.buf):cap(x.buf)])
		x.buf = x.buf[:len(x.buf)+got]
		if err != nil {
			x.ended = true
			if !errors.Is(err, io.EOF) && x.err == nil {
				x.err = err
			}
		}
	}
}

// take returns the next n bytes, until the next call; nil where there are fewer.
func (x *archive) take(n int) []byte {
	if len(x.buf)-x.at < n {
		x.more(n)
	}
	if len(x.buf)-x.at < n {
		x.fail("it ends early")
	}
	if x.err != nil {
		return nil
	}
	b := x.buf[x.at:][:n]
	x.at += n
	return b
}

// uvarint takes a number.
func (x *archive) uvarint() uint64 {
	if x.at < len(x.buf) && x.buf[x.at] < 0x80 { // most are small
		x.at++
		return uint64(x.buf[x.at-1])
	}
	if len(x.buf)-x.at < binary.MaxVarintLen64 {
		x.more(binary.MaxVarintLen64)
	}
	v, n := binary.Uvarint(x.buf[x.at:])
	if n <= 0 {
		x.fail("a number is cut off or too large")
	}
	if x.err != nil {
		return 0
	}
	x.at += n
	return v
}

// raw is bytes of a known length.
func (x *archive) raw(b []byte) {
	if x.saving {
		x.put(b)
	} else if got := x.take(len(b)); got != nil {
		copy(b, got)
	}
}

func (x *archive) id(p *events.ID) { x.raw(p[:]) }

// num is a number that is not negative.
func num[T ~int | ~uint8 | ~uint32 | ~uint64](x *archive, p *T) {
	if !x.saving {
		v := x.uvarint()
		if *p = T(v); uint64(*p) != v || *p < 0 {
			x.fail("a number is too large")
		}
		return
	}
	if len(x.buf) >= archiveBuffer {
		x.flush()
	}
	if v := uint64(*p); v < 0x80 {
		x.buf = append(x.buf, byte(v))
	} else {
		x.buf = binary.AppendUvarint(x.buf, v)
	}
}

// signed is a number that may be negative.
func (x *archive) signed(p *int64) {
	u := uint64(*p)<<1 ^ uint64(*p>>63)
	num(x, &u)
	*p = int64(u>>1) ^ -int64(u&1)
}

func (x *archive) flag(p *bool) {
	if !x.saving {
		v := x.uvarint()
		if *p = v == 1; v > 1 {
			x.fail("a flag is neither set nor not")
		}
	} else if *p {
		x.buf = append(x.buf, 1)
	} else {
		x.buf = append(x.buf, 0)
	}
}

// instant is a time, in UTC.
func (x *archive) instant(p *time.Time) {
	sec, nano := p.Unix(), p.Nanosecond()
	x.signed(&sec)
	num(x, &nano)
	if !x.saving {
		*p = time.Unix(sec, int64(nano)).UTC()
	}
}

// text is a text of any kind.
func text[T ~string](x *archive, p *T) {
	n := len(*p)
	num(x, &n)
	switch {
	case x.saving:
		x.buf = append(x.buf, *p...)
	case n > maxText:
		x.fail("a text is too long")
	default:
		*p = T(x.take(n))
	}
}

// refTo is a reference, 0 for none.
func refTo[T ~uint32](x *archive, p *T, t table) {
	num(x, p)
	if !x.saving && uint32(*p) > x.counts[t] {
		x.fail("a reference leads nowhere")
	}
}

// length is that of a list; -1 for none at all, which is another thing than an
// empty one.
func (x *archive) length(n *int) {
	*n++
	num(x, n)
	*n--
}

// listOf is a list of anything.
func listOf[T any](x *archive, p *[]T, each func(*T)) {
	n := len(*p)
	if *p == nil {
		n = -1
	}
	x.length(&n)
	if x.saving {
		for i := range *p {
			each(&(*p)[i])
		}
		return
	}
	if n < 0 {
		return
	}
	l := make([]T, 0, min(n, archiveBuffer))
	for range n {
		var v T
		if each(&v); x.err != nil {
			return
		}
		l = append(l, v)
	}
	*p = l
}

// refs is a list of references, none of them 0.
func refs[T ~uint32](x *archive, p *[]T, t table) {
	listOf(x, p, func(r *T) {
		if refTo(x, r, t); *r == 0 {
			x.fail("a reference leads nowhere")
		}
	})
}

// mapOf is a map, by its keys in order.
func mapOf[K comparable, V any](x *archive, p *map[K]V, order func(a, b K) int, each func(*K, *V)) {
	n := len(*p)
	if *p == nil {
		n = -1
	}
	x.length(&n)
	if x.saving {
		for _, k := range slices.SortedFunc(maps.Keys(*p), order) {
			v := (*p)[k]
			each(&k, &v)
		}
		return
	}
	if n < 0 {
		return
	}
	m := make(map[K]V, min(n, archiveBuffer))
	for range n {
		var k K
		var v V
		if each(&k, &v); x.err != nil {
			return
		}
		m[k] = v
	}
	if len(m) != n {
		x.fail("a key is there twice")
	}
	*p = m
}

// every is the values of an arena; their count is known.
func every[T any](x *archive, a *arena[T], t table, each func(*T)) {
	off := &journal{}
	for i := range x.counts[t] {
		if x.err != nil {
			return
		}
		if x.saving {
			each(a.at(i + 1))
		} else {
			_, p := a.add(off)
			each(p)
		}
	}
}

// seal ends what is saved with its sum.
func (x *archive) seal() error {
	x.flush()
	if x.err == nil {
		_, x.err = x.w.Write(x.sum.Sum(nil))
	}
	return x.err
}

// unseal checks the sum of what was loaded, and that nothing comes after it.
func (x *archive) unseal() error {
	x.more(sha256.Size + 1)
	want := x.sum.Sum(nil)
	switch {
	case x.err != nil:
	case len(x.buf) < sha256.Size:
		x.fail("it ends early")
	case len(x.buf) > sha256.Size:
		x.fail("something comes after its end")
	case !bytes.Equal(x.buf, want):
		x.fail("its sum is wrong")
	}
	return x.err
}

// compareIDs orders ids by their bytes.
func compareIDs(a, b events.ID) int { return bytes.Compare(a[:], b[:]) }

func compareFields(a, b FieldKey) int {
	return cmp.Or(compareIDs(a.Entity, b.Entity), cmp.Compare(a.Field, b.Field))
}

func compareGone(a, b goneKey) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
}
