package events

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Header names: CloudEvents 1.0 context attributes in binary content mode, with
// the prefix "ce-" in lower case, then bindery's extension attributes.
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
	hContinues   = "ce-continues"
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

// continues is the one value of ce-continues; a command that ends its series, or
// is no series, has no such header.
const continues = "true"

// SpecVersion is the CloudEvents version of the envelope.
const SpecVersion = "1.0"

// sourcePrefix and the mesh's id make the CloudEvents source.
const sourcePrefix = "/bindery/"

// timeLayout is RFC 3339 in UTC with exactly three decimals, so that an
// instant has one spelling.
const timeLayout = "2006-01-02T15:04:05.000Z"

// Instant is t as events hold it: in UTC, cut to whole milliseconds.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// The greatest lengths of a reason and of an actor in bytes, before encoding.
const (
	MaxReason = 1024
	MaxActor  = 255
)

// CheckReason reports whether s can be the reason of an event: empty, or at
// most MaxReason bytes of text that carry no secret (else it wraps ErrSecret).
func CheckReason(s string) error {
	return cmp.Or(CheckNoSecret(s), checkText("reason", s, MaxReason))
}

// CheckActor reports whether s can be the actor of an event: 1 to MaxActor
// bytes of text that carry no secret (else it wraps ErrSecret).
func CheckActor(s string) error {
	if s == "" {
		return errors.New("no actor")
	}
	return cmp.Or(CheckNoSecret(s), checkText("actor", s, MaxActor))
}

// checkText checks that s is text as CloudEvents defines its String (section
// "Type System"): UTF-8 without controls and noncharacters. Its error leaves
// the value out.
func checkText(what, s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("%s is %d bytes long; at most %d are allowed", what, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not in UTF-8", what)
	case strings.ContainsFunc(s, noText):
		return fmt.Errorf("%s has a control character, such as a line break, or a noncharacter", what)
	}
	return nil
}

func noText(r rune) bool {
	return unicode.IsControl(r) || r&0xfffe == 0xfffe || r >= 0xfdd0 && r <= 0xfdef
}

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
	K, N        int  // the event is the k-th of the n of its command, from 1
	Continues   bool // another command of the same series follows this event's
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
	vals := make([]string, 0, 13)
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
	if e.Continues {
		put(hContinues, continues)
	}
	return h
}

// headerReader takes single values out of a header and keeps the first error.
type headerReader struct {
	h   map[string][]string
	err error
}

func (r *headerReader) get(name string) string {
	v := r.h[name]
	if len(v) == 1 && v[0] != "" {
		return v[0]
	}
	if r.err == nil {
		switch len(v) {
		case 0:
			r.err = fmt.Errorf("header %s: missing", name)
		case 1:
			r.err = fmt.Errorf("header %s: empty", name)
		default:
			r.err = fmt.Errorf("header %s: %d values, need one", name, len(v))
		}
	}
	return ""
}

// readHeader is the inverse of header; it returns the ce-type as well.
func (e *Event) readHeader(h map[string][]string) (ceType string, err error) {
	r := headerReader{h: h}
	version, ceType, id, command := r.get(hSpecVersion), r.get(hType), r.get(hID), r.get(hCommand)
	source, when, actor := r.get(hSource), r.get(hTime), r.get(hActor)
	origin, batch, hash, chain := r.get(hOrigin), r.get(hBatch), r.get(hCommandHash), r.get(hChain)
	reason := ""
	if _, ok := h[hReason]; ok {
		reason = r.get(hReason)
	}
	if r.err != nil {
		return "", r.err
	}
	if version != SpecVersion {
		return "", fmt.Errorf("header %s: %q, need %q", hSpecVersion, clip(version), SpecVersion)
	}
	if e.ID, err = ParseID(id); err != nil {
		return "", fmt.Errorf("header %s: %w", hID, err)
	}
	if e.Command, err = ParseID(command); err != nil {
		return "", fmt.Errorf("header %s: %w", hCommand, err)
	}
	if e.Mesh, err = parseSource(source); err != nil {
		return "", fmt.Errorf("header %s: %w", hSource, err)
	}
	if e.Time, err = parseTime(when); err != nil {
		return "", fmt.Errorf("header %s: %w", hTime, err)
	}
	if e.Actor, err = decodeText("actor", actor, MaxActor); err != nil {
		return "", fmt.Errorf("header %s: %w", hActor, err)
	}
	if e.Origin = Origin(origin); e.Origin != OriginCommand && e.Origin != OriginManifest {
		return "", fmt.Errorf("header %s: %q is no origin", hOrigin, clip(origin))
	}
	if e.K, e.N, err = ParseBatch(batch); err != nil {
		return "", fmt.Errorf("header %s: %w", hBatch, err)
	}
	if !decodeHex(e.CommandHash[:], hash) {
		return "", fmt.Errorf("header %s: %q: not %d lower-case hexadecimal digits",
			hCommandHash, clip(hash), hex.EncodedLen(len(e.CommandHash)))
	}
	if e.Chain, err = ParseChain(chain); err != nil {
		return "", fmt.Errorf("header %s: %w", hChain, err)
	}
	if e.Reason, err = decodeText("reason", reason, MaxReason); err != nil {
		return "", fmt.Errorf("header %s: %w", hReason, err)
	}
	if _, e.Continues = h[hContinues]; e.Continues && r.get(hContinues) != continues {
		return "", fmt.Errorf("header %s: not %q", hContinues, continues)
	}
	return ceType, nil
}

// decodeText reads a percent-encoded text. It does not look for secrets: what
// was written has to stay readable, whatever a later version takes for one.
func decodeText(what, s string, most int) (string, error) {
	text, err := percentDecode(s)
	if err != nil {
		return "", err
	}
	return text, checkText(what, text, most)
}

func parseSource(s string) (ID, error) {
	text, ok := strings.CutPrefix(s, sourcePrefix)
	if !ok {
		return ID{}, fmt.Errorf("%q does not begin with %q", clip(s), sourcePrefix)
	}
	return ParseID(text)
}

// parseTime reads timeLayout and nothing else; time.Parse alone would take more.
func parseTime(s string) (time.Time, error) {
	ok := len(s) == len(timeLayout)
	for i := 0; ok && i < len(s); i++ {
		if c := timeLayout[i]; c >= '0' && c <= '9' {
			ok = s[i] >= '0' && s[i] <= '9'
		} else {
			ok = s[i] == c
		}
	}
	if !ok {
		return time.Time{}, fmt.Errorf("%q: not like %s: in UTC, with three decimals", clip(s), timeLayout)
	}
	return time.Parse(time.RFC3339, s)
}

// ParseBatch reads the k/n of a ce-batch header.
func ParseBatch(s string) (k, n int, err error) {
	left, right, _ := strings.Cut(s, "/")
	if k, n = parseCount(left), parseCount(right); k < 1 || k > n {
		return 0, 0, fmt.Errorf("batch %q: not k/n with 1 ≤ k ≤ n", clip(s))
	}
	return k, n, nil
}

// parseCount reads a decimal number from 1 in its only spelling; 0 is none.
func parseCount(s string) int {
	if s == "" || s[0] < '1' || s[0] > '9' {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// percentEncode follows the NATS protocol binding of CloudEvents, section
// 3.1.3.2: what is not printable ASCII, and space, quote and percent, become
// %XX with upper-case digits.
func percentEncode(s string) string {
	const hexDigits = "0123456789ABCDEF"
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

// plain reports whether c stands for itself.
func plain(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }

// percentDecode reads what percentEncode writes and nothing else: the binding
// lets a reader take more, but a ledger is to have one spelling.
func percentDecode(s string) (string, error) {
	i := 0
	for i < len(s) && plain(s[i]) {
		i++
	}
	if i == len(s) {
		return s, nil
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		c := s[i]
		switch {
		case plain(c):
			b = append(b, c)
			continue
		case c != '%' || i+2 >= len(s):
			return "", fmt.Errorf("%q: a character that is to be percent-encoded, or a cut escape", clip(s))
		}
		hi, lo := upperHex(s[i+1]), upperHex(s[i+2])
		if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
			return "", fmt.Errorf("%q: escape %q is not canonical", clip(s), s[i:i+3])
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), nil
}

func upperHex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
