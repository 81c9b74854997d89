package events

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Chain is the running hash of a ledger at one event. The zero Chain stands
// before the first event.
type Chain [sha256.Size]byte

// String returns 64 lower-case hexadecimal digits.
func (c Chain) String() string { return hex.EncodeToString(c[:]) }

// ParseChain reads what String writes.
func ParseChain(s string) (Chain, error) {
	var c Chain
	if !decodeHex(c[:], s) {
		return Chain{}, fmt.Errorf("chain value %q: not %d lower-case hexadecimal digits", clip(s), hex.EncodedLen(len(c)))
	}
	return c, nil
}

// decodeHex fills dst (32 bytes at most) from exactly as many lower-case digits.
func decodeHex(dst []byte, s string) bool {
	var digits [2 * sha256.Size]byte // []byte(s) would be on the heap
	if len(s) != hex.EncodedLen(len(dst)) || hasByte(s, 'A', 'F') {
		return false
	}
	_, err := hex.Decode(dst, digits[:copy(digits[:], s)])
	return err == nil
}

// chained are the ce-* headers this version writes, without ce-chain itself,
// in the order they are hashed: bytewise by name.
var chained = []string{
	hActor, hBatch, hCommand, hCommandHash, hContinues, hID, hOrigin, hReason, hSource, hSpecVersion, hTime, hType,
}

// Link computes the chain value of the record r that follows the value prev in
// the ledger of mesh: SHA-256 over
//
//	prev (32 bytes) ‖ mesh id (16 bytes) ‖ sequence (8 bytes, big-endian) ‖
//	s(subject) ‖ n (4 bytes, big-endian) ‖ n × ( s(name) ‖ s(value) ) ‖ s(payload)
//
// where s(x) is the length of x in bytes (4 bytes, big-endian) and x. The n
// pairs are those of all headers whose name begins with "ce-", except ce-chain,
// sorted bytewise by name; one that this version does not know takes part as
// well. Headers of the server and of other tools ("Nats-…") do not: a mirror
// strips them. A header with several values, which is never written, gives a
// pair for each, in their order.
func (prev Chain) Link(mesh ID, r *Record) Chain {
	// Room for nearly every event without the heap; append takes care of the rest.
	var room [2048]byte
	var headers [16]header
	buf := append(room[:0], prev[:]...)
	buf = append(buf, mesh[:]...)
	buf = binary.BigEndian.AppendUint64(buf, r.Seq)
	buf = appendString(buf, r.Subject)
	count, n := len(buf), 0
	buf = append(buf, 0, 0, 0, 0)
	for _, h := range chainedHeaders(headers[:0], r.Header) {
		for _, v := range h.values {
			buf = appendString(buf, h.name)
			buf = appendString(buf, v)
			n++
		}
	}
	binary.BigEndian.PutUint32(buf[count:], uint32(n))
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(r.Data)))
	buf = append(buf, r.Data...)
	return sha256.Sum256(buf)
}

func appendString(buf []byte, s string) []byte {
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(s)))
	return append(buf, s...)
}

type header struct {
	name   string
	values []string
}

// chainedHeaders appends the headers that take part, in order. Almost always
// they are a run of the known ones, already sorted; counting finds the rest.
func chainedHeaders(list []header, h map[string][]string) []header {
	for _, name := range chained {
		if v, ok := h[name]; ok {
			list = append(list, header{name, v})
		}
	}
	all := 0
	for name := range h {
		if takesPart(name) {
			all++
		}
	}
	if all == len(list) {
		return list
	}
	for name, v := range h {
		if takesPart(name) && !slices.Contains(chained, name) {
			list = append(list, header{name, v})
		}
	}
	slices.SortFunc(list, func(a, b header) int { return strings.Compare(a.name, b.name) })
	return list
}

func takesPart(name string) bool { return strings.HasPrefix(name, "ce-") && name != hChain }
