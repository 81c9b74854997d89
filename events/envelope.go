package events

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Header names: CloudEvents 1.0 attributes in binary content mode (CloudEvents
// core section 3, NATS protocol binding section 3.1: prefix "ce-", lower case),
// then bindery's extension attributes.
const (
	hSpecVersion = "ce-specversion"
	hType        = "ce-type"
	hSource      = "ce-source"
	hID          = "ce-id"
	hTime        = "ce-time"

	hActor       = "ce-actor"
	hCommand     = "ce-command"
	hCommandHash = "ce-commandhash"
	hReason      = "ce-reason"
	hOrigin      = "ce-origin"
	hBatch       = "ce-batch"
	hChain       = "ce-chain"
)

// HeaderID, HeaderCommand and HeaderChain are what the ledger looks at without
// decoding an event: which event, of which command, with which chain value.
const (
	HeaderID      = hID
	HeaderCommand = hCommand
	HeaderChain   = hChain
	HeaderType    = hType
	HeaderBatch   = hBatch
)

// SpecVersion is the CloudEvents version of the envelope.
const SpecVersion = "1.0"

// sourcePrefix and the mesh's id make the CloudEvents source.
const sourcePrefix = "/bindery/"

// timeLayout is RFC 3339 in UTC with exactly three decimals, so that an
// instant has one spelling.
const timeLayout = "2006-01-02T15:04:05.000Z"

// MaxReason is the greatest length of a reason in bytes, before encoding.
const MaxReason = 1024

// Origin says where the values of an event came from.
type Origin string

// The origins.
const (
	OriginCommand  Origin = "command"  // somebody typed it
	OriginManifest Origin = "manifest" // apply read it from a manifest
)

// CommandHash is the first 16 bytes of the SHA-256 over a command's content;
// with it a repeated command id is told from a reused one.
type CommandHash [16]byte

// String returns 32 lower-case hexadecimal digits.
func (h CommandHash) String() string { return hex.EncodeToString(h[:]) }

// Envelope is who, when, under which command and why: what CloudEvents calls
// context attributes.
type Envelope struct {
	ID          ID
	Mesh        ID        // from the source
	Time        time.Time // UTC, whole milliseconds
	Actor       string
	Command     ID
	CommandHash CommandHash
	Reason      string
	Origin      Origin
	K, N        int // the event is the k-th of the n of its command, from 1
}

// Event is one decoded event.
type Event struct {
	Envelope
	Seq      uint64
	MeshName string
	Type     Type
	Entity   ID // which node, provider, binding …; Type.Entity says of what kind
	Data     Payload
	Chain    Chain // zero until the event is encoded
}

// Last reports whether the event closes its command.
func (e *Event) Last() bool { return e.K == e.N }

// header writes the envelope without its chain value.
func (e *Event) header() map[string][]string {
	// One backing array for all values: an event is a dozen short slices.
	vals := make([]string, 0, 12)
	h := make(map[string][]string, 12)
	put := func(name, value string) {
		vals = append(vals, value)
		h[name] = vals[len(vals)-1 : len(vals) : len(vals)]
	}
	put(hSpecVersion, SpecVersion)
	put(hType, e.Type.String())
	put(hSource, sourcePrefix+e.Mesh.String())
	put(hID, e.ID.String())
	put(hTime, e.Time.UTC().Format(timeLayout))
	put(hActor, percentEncode(e.Actor))
	put(hCommand, e.Command.String())
	put(hCommandHash, e.CommandHash.String())
	put(hOrigin, string(e.Origin))
	put(hBatch, strconv.Itoa(e.K)+"/"+strconv.Itoa(e.N))
	if e.Reason != "" {
		put(hReason, percentEncode(e.Reason))
	}
	return h
}

// readHeader is the inverse of header; it returns the ce-type as well.
func (e *Event) readHeader(h map[string][]string) (ceType string, err error) {
	get := func(name string) string {
		v := h[name]
		if err != nil {
			return ""
		}
		if len(v) != 1 || v[0] == "" {
			err = fmt.Errorf("header %s: %d values, need one", name, len(v))
			return ""
		}
		return v[0]
	}
	id := func(name string) (out ID) {
		if s := get(name); err == nil {
			if out, err = ParseID(s); err != nil {
				err = fmt.Errorf("header %s: %w", name, err)
			}
		}
		return out
	}
	if v := get(hSpecVersion); err == nil && v != SpecVersion {
		return "", fmt.Errorf("header %s: %q, need %q", hSpecVersion, clip(v), SpecVersion)
	}
	ceType = get(hType)
	e.ID, e.Command = id(hID), id(hCommand)
	source, when, actor := get(hSource), get(hTime), get(hActor)
	origin, batch, hash, chain := get(hOrigin), get(hBatch), get(hCommandHash), get(hChain)
	if err != nil {
		return "", err
	}
	if e.Mesh, err = parseSource(source); err != nil {
		return "", fmt.Errorf("header %s: %w", hSource, err)
	}
	if e.Time, err = parseTime(when); err != nil {
		return "", fmt.Errorf("header %s: %w", hTime, err)
	}
	if e.Actor, err = percentDecode(actor); err != nil {
		return "", fmt.Errorf("header %s: %w", hActor, err)
	}
	if e.Origin = Origin(origin); e.Origin != OriginCommand && e.Origin != OriginManifest {
		return "", fmt.Errorf("header %s: %q is no origin", hOrigin, clip(origin))
	}
	if e.K, e.N, err = ParseBatch(batch); err != nil {
		return "", fmt.Errorf("header %s: %w", hBatch, err)
	}
	if err = e.CommandHash.parse(hash); err != nil {
		return "", fmt.Errorf("header %s: %w", hCommandHash, err)
	}
	if e.Chain, err = ParseChain(chain); err != nil {
		return "", fmt.Errorf("header %s: %w", hChain, err)
	}
	if r := h[hReason]; len(r) > 0 {
		if e.Reason, err = percentDecode(get(hReason)); err != nil {
			return "", fmt.Errorf("header %s: %w", hReason, err)
		}
	}
	return ceType, err
}

func parseSource(s string) (ID, error) {
	text, ok := strings.CutPrefix(s, sourcePrefix)
	if !ok {
		return ID{}, fmt.Errorf("%q does not begin with %q", clip(s), sourcePrefix)
	}
	return ParseID(text)
}

func (h *CommandHash) parse(s string) error {
	if len(s) != hex.EncodedLen(len(h)) || strings.ToLower(s) != s {
		return fmt.Errorf("%q: not %d lower-case hexadecimal digits", clip(s), hex.EncodedLen(len(h)))
	}
	_, err := hex.Decode(h[:], []byte(s))
	return err
}

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, err
	}
	if t = t.UTC(); t.Format(timeLayout) != s {
		return t, fmt.Errorf("%q: not in UTC with three decimals", clip(s))
	}
	return t, nil
}

// ParseBatch reads the k/n of a ce-batch header.
func ParseBatch(s string) (k, n int, err error) {
	ks, ns, ok := strings.Cut(s, "/")
	k, e1 := strconv.Atoi(ks)
	n, e2 := strconv.Atoi(ns)
	if !ok || e1 != nil || e2 != nil || k < 1 || k > n || strconv.Itoa(k)+"/"+strconv.Itoa(n) != s {
		return 0, 0, fmt.Errorf("batch %q: not k/n with 1 ≤ k ≤ n", clip(s))
	}
	return k, n, nil
}

// percentEncode follows CloudEvents' HTTP protocol binding, section 3.1.3.2:
// what is not printable ASCII, and space, quote and percent, become %XX.
func percentEncode(s string) string {
	const hexDigits = "0123456789ABCDEF"
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }
	n := 0
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

// percentDecode reads what percentEncode writes and nothing else.
func percentDecode(s string) (string, error) {
	if !strings.ContainsRune(s, '%') {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("%q: cut percent escape", clip(s))
		}
		v, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("%q: bad percent escape", clip(s))
		}
		b = append(b, byte(v))
		i += 2
	}
	if out := string(b); percentEncode(out) == s {
		return out, nil
	}
	return "", fmt.Errorf("%q: not in canonical percent encoding", clip(s))
}
