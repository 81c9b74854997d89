package service

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nkeys"

	"bindery/commands"
	"bindery/ledger"
)

// Headers of a signed request.
const (
	HeaderKey  = "Bindery-Key"  // the public nkey of who asks
	HeaderTime = "Bindery-Time" // when it was signed, in nanoseconds since 1970
	HeaderSig  = "Bindery-Sig"  // Ed25519 over what signed returns, base64url without padding
)

// signatureWindow is how far the time of a signature may lie from this machine's.
// A request that is older could be somebody's record of one.
const signatureWindow = 2 * time.Minute

// signed are the bytes that a request's signature is over: the mesh, where the
// request goes, where its answer goes, the time, and the body with verb, command
// id and arguments in it.
func signed(mesh, subject, reply, at string, body []byte) []byte {
	sum := sha256.Sum256(body)
	return []byte(strings.Join([]string{"bindery request 1", mesh, subject, reply, at, hex.EncodeToString(sum[:])}, "\n"))
}

// sign puts the headers of a signed request on m.
func sign(m *nats.Msg, mesh string, key ledger.Key, now time.Time) error {
	at := strconv.FormatInt(now.UnixNano(), 10)
	sig, err := key.Sign(signed(mesh, m.Subject, m.Reply, at, m.Data))
	if err != nil {
		return err
	}
	m.Header = nats.Header{HeaderKey: {key.Public}, HeaderTime: {at}, HeaderSig: {base64.RawURLEncoding.EncodeToString(sig)}}
	return nil
}

// Door says who may ask. The zero Door lets in whoever reaches the service.
type Door struct {
	// Signed asks every request to be signed by a key that is granted access, or
	// by Local.
	Signed bool
	// Local is the public nkey of whoever can read the store's files: it speaks for
	// whomever it says.
	Local string
}

// Why a request was turned away before anybody looked at what it asks.
var (
	errUnsigned = errors.New("the request is not signed")
	errSigner   = errors.New("the signature is not that of the key")
	errStale    = errors.New("the signature's time is more than two minutes from the server's clock")
	errReplayed = errors.New("the request was heard before")
	errInbox    = errors.New("the answer would go where the key has no inbox")
)

// doorman checks signatures, and remembers those it has seen.
type doorman struct {
	door Door
	mesh string
	now  func() time.Time

	mu     sync.Mutex
	seen   map[string]time.Time // signature to when it is too old anyway
	swept  time.Time
	turned map[string]uint64 // reason to how many were turned away
}

func newDoorman(door Door, mesh string, now func() time.Time) *doorman {
	return &doorman{door: door, mesh: mesh, now: now, seen: map[string]time.Time{}, turned: map[string]uint64{}}
}

// admit tells whose request it is: the key that signed it, or "" where that need
// not be known. answer reports whether the error may be told to who asked.
func (d *doorman) admit(req micro.Request) (key string, answer bool, err error) {
	if !d.door.Signed {
		return "", true, nil
	}
	key, answer, err = d.check(req)
	if err != nil {
		d.mu.Lock()
		d.turned[err.Error()]++
		d.mu.Unlock()
		return "", answer, &commands.Refusal{Code: commands.NotPermitted, Message: "the request is turned away", Why: err.Error(), Candidates: []commands.Candidate{}}
	}
	if key == d.door.Local {
		key = ""
	}
	return key, true, nil
}

func (d *doorman) check(req micro.Request) (key string, answer bool, err error) {
	h := req.Headers()
	key, at, text := h.Get(HeaderKey), h.Get(HeaderTime), h.Get(HeaderSig)
	if key == "" || text == "" {
		return "", false, errUnsigned
	}
	sig, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", false, errSigner
	}
	public, err := nkeys.FromPublicKey(key)
	if err != nil || public.Verify(signed(d.mesh, req.Subject(), req.Reply(), at, req.Data()), sig) != nil {
		return "", false, errSigner
	}
	if !strings.HasPrefix(req.Reply(), InboxOf(key)+".") {
		return "", false, errInbox
	}
	ns, err := strconv.ParseInt(at, 10, 64)
	now := d.now()
	when := time.Unix(0, ns)
	if err != nil || when.Before(now.Add(-signatureWindow)) || when.After(now.Add(signatureWindow)) {
		return "", true, errStale
	}
	if !d.first(text, when.Add(2*signatureWindow), now) {
		return "", true, errReplayed
	}
	return key, true, nil
}

// first reports whether a signature was not seen before. Those that are too old
// to pass are forgotten.
func (d *doorman) first(sig string, until, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.swept) > signatureWindow {
		d.swept = now
		for s, end := range d.seen {
			if end.Before(now) {
				delete(d.seen, s)
			}
		}
	}
	_, seen := d.seen[sig]
	d.seen[sig] = until
	return !seen
}

// Turned tells how many requests were turned away at the door, by reason.
func (s *Service) Turned() map[string]uint64 {
	s.doorman.mu.Lock()
	defer s.doorman.mu.Unlock()
	out := make(map[string]uint64, len(s.doorman.turned))
	for reason, n := range s.doorman.turned {
		out[reason] = n
	}
	return out
}
