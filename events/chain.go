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
	if len(s) != hex.EncodedLen(len(c)) || strings.ToLower(s) != s {
		return c, fmt.Errorf("chain value %q: not %d lower-case hexadecimal digits", clip(s), hex.EncodedLen(len(c)))
	}
	if _, err := hex.Decode(c[:], []byte(s)); err != nil {
		return Chain{}, fmt.Errorf("chain value %q: %w", clip(s), err)
	}
	return c, nil
}

// chained are the ce-* headers this version writes, without ce-chain itself,
// in the order they are hashed: bytewise by name.
var chained = []string{
	hActor, hBatch, hCommand, hCommandHash, hID, hOrigin, hReason, hSource, hSpecVersion, hTime, hType,
}

// Link computes the chain value of the record r that follows the value prev in
// the ledger of mesh: SHA-256 over
//
//	prev (32 bytes) ‖ mesh id (16 bytes) ‖ sequence (8 bytes, big-endian) ‖
//	s(subject) ‖ n (4 bytes, big-endian) ‖ n × ( s(name) ‖ s(value) ) ‖ s(payload)
//
// where s(x) is the length of x in bytes (4 bytes, big-endian) and x. The n
// headers are all those whose name begins with "ce-", except ce-chain, sorted
// bytewise by name; one that this version does not know takes part as well.
// Headers of the server and of other tools ("Nats-…") do not: a mirror strips
// them. A header with more than one value is never written and hashes as its
// first.
func (prev Chain) Link(mesh ID, r *Record) Chain {
	buf := make([]byte, 0, 1024+len(r.Data))
	buf = append(buf, prev[:]...)
	buf = append(buf, mesh[:]...)
	buf = binary.BigEndian.AppendUint64(buf, r.Seq)
	buf = appendString(buf, r.Subject)
	names := chainedHeaders(r.Header)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(names)))
	for _, name := range names {
		buf = appendString(buf, name)
		buf = appendString(buf, r.Header[name][0])
	}
	buf = appendString(buf, string(r.Data))
	return sha256.Sum256(buf)
}

func appendString(buf []byte, s string) []byte {
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(s)))
	return append(buf, s...)
}

// chainedHeaders lists the names that take part, in order. Almost always they
// are a run of the known ones, already sorted.
func chainedHeaders(h map[string][]string) []string {
	names := make([]string, 0, len(chained))
	for _, name := range chained {
		if len(h[name]) > 0 {
			names = append(names, name)
		}
	}
	known := len(names)
	for name, v := range h {
		if strings.HasPrefix(name, "ce-") && name != hChain && len(v) > 0 && !slices.Contains(chained, name) {
			names = append(names, name)
		}
	}
	if len(names) > known {
		slices.Sort(names)
	}
	return names
}
