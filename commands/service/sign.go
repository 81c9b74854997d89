package service

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nkeys"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Headers of a signed request.
const (
	HeaderKey    = "Bindery-Key"    // the public nkey of the caller
	HeaderLedger = "Bindery-Ledger" // which ledger the request is for (Identity.Audience)
	HeaderTime   = "Bindery-Time"   // when it was signed, in nanoseconds since 1970
	HeaderSig    = "Bindery-Sig"    // Ed25519 over what signed returns, base64url without padding
)

// signatureWindow is how far the time of a signature may lie from this machine's.
// A request that is older could be somebody's record of one.
const signatureWindow = 2 * time.Minute

// Identity tells one ledger from every other, also from a restored copy of it.
type Identity struct {
	Mesh   string    `json:"mesh"`
	MeshID events.ID `json:"mesh_id"`
	Ledger string    `json:"ledger"` // what the stream was created with (ledger.Log.Created)
}

// Audience is what a signature names the ledger by.
func (i Identity) Audience() string { return i.MeshID.String() + "/" + i.Ledger }

// signed are the bytes that a request's signature is over: the ledger it is for,
// where the request goes, where its answer goes, the time, and the body with verb,
// command id and arguments in it.
func signed(audience, subject, reply, at string, body []byte) []byte {
	sum := sha256.Sum256(body)
	return []byte(strings.Join([]string{"bindery request 2", audience, subject, reply, at, hex.EncodeToString(sum[:])}, "\n"))
}

// sign puts the headers of a signed request on m.
func sign(m *nats.Msg, audience string, key ledger.Key, now time.Time) error {
	at := strconv.FormatInt(now.UnixNano(), 10)
	sig, err := key.Sign(signed(audience, m.Subject, m.Reply, at, m.Data))
	if err != nil {
		return err
	}
	m.Header = nats.Header{HeaderKey: {key.Public}, HeaderLedger: {audience}, HeaderTime: {at}, HeaderSig: {base64.RawURLEncoding.EncodeToString(sig)}}
	return nil
}

// Door says who may ask. The zero Door lets in whoever reaches the service.
type Door struct {
	// Signed asks every request to come from a guest's own account (see Admit), and
	// to be signed with the guest's key, which must be granted access, or be Local.
	Signed bool
	// Local is the public nkey of whoever can read the store's files: it speaks for
	// whomever it says.
	Local string
	// Flooded is told of a guest that sends far more than is taken from it; nil:
	// nobody is told.
	Flooded func(key string)
	// Listeners tells how many subscriptions of a guest an answer goes to; nil: that is
	// not known.
	Listeners func(key, subject string) int
}

// Why a request was turned away before anybody looked at what it asks.
var (
	errWithin   = errors.New("the request came from within the ledger's own account, where no caller may be")
	errUnsigned = errors.New("the request is not signed")
	errSigner   = errors.New("the signature is not that of the key")
	errStale    = errors.New("the signature's time is more than two minutes from the server's clock")
	errReplayed = errors.New("the request was heard before")
	errInbox    = errors.New("the answer would go where the key has no inbox")
	errLedger   = errors.New("the request is signed for another ledger")
)

// signature is the bytes of one: its text can be spelt in several ways.
type signature [ed25519.SignatureSize]byte

// remembered is how long a signature is remembered at least: from two minutes before
// its time, when it is first heard at the earliest, until it is too old to pass.
const remembered = 2 * signatureWindow

// doorman checks signatures, and remembers those it has seen.
type doorman struct {
	door     Door
	audience func() string
	now      func() time.Time

	seed maphash.Seed // of what is remembered of a signature: nobody can foresee it

	mu sync.Mutex
	// What was heard: since the last change, and between that and the one before. They
	// change places once in remembered, so that a busy key costs some bytes a request.
	seen, before map[uint64]struct{}
	changed      time.Time
	turned       map[string]uint64 // reason to how many were turned away
}

func newDoorman(door Door, audience func() string, now func() time.Time) *doorman {
	return &doorman{door: door, audience: audience, now: now, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, turned: map[string]uint64{}}
}

// admit tells whose request it is: the key that signed it, or "" where that need
// not be known. answer reports whether the error may be told to the caller.
func (d *doorman) admit(req micro.Request) (key string, answer bool, err error) {
	if !d.door.Signed {
		return "", true, nil
	}
	key, answer, err = d.check(req)
	if err != nil {
		d.turn(err)
		return "", answer, turnedAway(err)
	}
	if key == d.door.Local {
		key = ""
	}
	return key, true, nil
}

// turn counts a request that is turned away.
func (d *doorman) turn(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turned[why.Error()]++
}

// turnedAway is the refusal of a request.
func turnedAway(err error) *commands.Refusal {
	r := &commands.Refusal{Code: commands.NotPermitted, Message: "the request is turned away", Why: err.Error(), Candidates: []commands.Candidate{}}
	switch err {
	case errLedger:
		r.Code, r.Message = commands.LedgerRestored, "the ledger here is not the one the request is for"
		r.Why = "it was created again or restored since the caller asked which ledger is served"
	case errWithin:
		r.Fix = projections.Do("access permissions")
	}
	return r
}

func (d *doorman) check(req micro.Request) (key string, answer bool, err error) {
	from, ok := req.(*guestRequest)
	if !ok {
		return "", true, errWithin
	}
	h := req.Headers()
	key, at := h.Get(HeaderKey), h.Get(HeaderTime)
	switch {
	case key == "" || h.Get(HeaderSig) == "":
		return "", false, errUnsigned
	case key != from.guest.key:
		return "", false, errSigner
	case !from.answerable():
		return "", false, errInbox
	}
	var sig signature
	if n, err := base64.RawURLEncoding.Strict().Decode(sig[:], clip64(h.Get(HeaderSig))); err != nil || n != len(sig) {
		return "", false, errSigner
	}
	audience := d.audience()
	if h.Get(HeaderLedger) != audience {
		return "", true, errLedger
	}
	public, err := nkeys.FromPublicKey(key)
	if err != nil || public.Verify(signed(audience, req.Subject(), req.Reply(), at, req.Data()), sig[:]) != nil {
		return "", false, errSigner
	}
	ns, err := strconv.ParseInt(at, 10, 64)
	now := d.now()
	when := time.Unix(0, ns)
	if err != nil || when.Before(now.Add(-signatureWindow)) || when.After(now.Add(signatureWindow)) {
		return "", true, errStale
	}
	if !d.first(sig, now) {
		return "", true, errReplayed
	}
	return key, true, nil
}

// clip64 is the text of a signature, or what is no signature where it is too long.
func clip64(text string) []byte {
	if base64.RawURLEncoding.DecodedLen(len(text)) > ed25519.SignatureSize {
		return nil
	}
	return []byte(text)
}

// first reports whether a signature was not heard before.
func (d *doorman) first(sig signature, now time.Time) bool {
	h := maphash.Bytes(d.seed, sig[:])
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.changed) > remembered {
		d.seen, d.before, d.changed = map[uint64]struct{}{}, d.seen, now
	}
	_, seen := d.seen[h]
	_, before := d.before[h]
	d.seen[h] = struct{}{}
	return !seen && !before
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
