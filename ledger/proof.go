package ledger

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"

	"bindery/events"
)

// Prover makes the proofs of a ledger's writer.
type Prover interface {
	// Prove returns the value of the Bindery-Proof header for the event of a mesh at
	// a sequence, whose chain value is written chain.
	Prove(mesh events.ID, seq uint64, chain string) (string, error)
}

// ProveWith makes every later Append put a proof on each command. It is called
// before the first Append.
func (l *Log) ProveWith(p Prover) { l.prover = p }

// Trust says that the log is that of a store, which takes only what its secrets prove,
// from the first sequence of the oldest one on; before that, and without any, the chain
// alone decides. It is called before the log is read. A log that is not trusted so is on
// a server: the writers' grants in it decide.
func (l *Log) Trust(s Secrets) { l.secrets, l.ofStore = s, true }

// prove puts a proof on the last record of each command.
func (l *Log) prove(cmds []events.Group) error {
	if l.prover == nil {
		return nil
	}
	for _, cmd := range cmds {
		r := &cmd[len(cmd)-1]
		mesh, err := events.MeshOf(r)
		if err != nil {
			return fmt.Errorf("proving sequence %d: %w: %w", r.Seq, ErrBadGroup, err)
		}
		proof, err := l.prover.Prove(mesh, r.Seq, r.Get(events.HeaderChain))
		if err != nil {
			return fmt.Errorf("proving sequence %d: %w", r.Seq, err)
		}
		r.Header[events.HeaderProof] = []string{proof}
	}
	return nil
}

// Secret is what a store proves its own commands with, from one sequence on.
type Secret struct {
	From uint64 `json:"from"` // the first sequence that may be proven with it
	Key  []byte `json:"key"`  // SecretSize random bytes
}

// SecretSize is the length of a store's secret in bytes.
const SecretSize = 32

// NewSecret makes a secret for what is appended from a sequence on.
func NewSecret(from uint64) Secret {
	s := Secret{From: from, Key: make([]byte, SecretSize)}
	_, _ = rand.Read(s.Key) // it never fails (crypto/rand)
	return s
}

// ID names the secret without telling it: the first 16 hexadecimal digits of its
// SHA-256.
func (s Secret) ID() string {
	sum := sha256.Sum256(s.Key)
	return hex.EncodeToString(sum[:8])
}

// ProofBySecret begins a proof by the secret of a store.
const ProofBySecret = "hmac-sha256"

// Prove implements Prover.
func (s Secret) Prove(mesh events.ID, seq uint64, chain string) (string, error) {
	return s.proof(events.ProofText(mesh, seq, chain)), nil
}

func (s Secret) proof(text []byte) string {
	return ProofBySecret + " " + s.ID() + " " + base64.RawURLEncoding.EncodeToString(s.sum(text))
}

func (s Secret) sum(text []byte) []byte {
	m := hmac.New(sha256.New, s.Key)
	m.Write(text)
	return m.Sum(nil)
}

// Seal is a proof by the secret about something other than an event. What it is for
// is named, so that one is never taken for another.
func (s Secret) Seal(purpose string, text []byte) string {
	return s.proof(append([]byte("bindery "+purpose+" 1\n"), text...))
}

// Secrets are those of a store, the oldest first. Each holds up to where the next
// one begins.
type Secrets []Secret

// check reports whether the secrets can be used.
func (s Secrets) check() error {
	last := uint64(0)
	for _, one := range s {
		if len(one.Key) != SecretSize || one.From <= last {
			return errors.New("the secrets of the store are not as they were written")
		}
		last = one.From
	}
	return nil
}

// After are the secrets for a ledger that is gone on with after a sequence, and whether
// another one was needed: where there is none, where the newest is for what comes later
// (that was lost), or where it is not to be used any more.
func (s Secrets) After(seq uint64, renew bool) (out Secrets, another bool) {
	for _, one := range s {
		if one.From <= seq+1 {
			out = append(out, one)
		}
	}
	if n := len(out); n == len(s) && n > 0 && !renew {
		return out, false
	}
	if n := len(out); n > 0 && out[n-1].From == seq+1 {
		out = out[:n-1] // nothing was proven with it
	}
	return append(out, NewSecret(seq+1)), true
}

// from is the first sequence that needs a proof; 0: there are no secrets.
func (s Secrets) from() uint64 {
	if len(s) == 0 {
		return 0
	}
	return s[0].From
}

// Newest is the secret that proves what is appended now.
func (s Secrets) Newest() (Secret, bool) {
	if len(s) == 0 {
		return Secret{}, false
	}
	return s[len(s)-1], true
}

// Sealed reports whether one of the secrets has sealed a text.
func (s Secrets) Sealed(purpose string, text []byte, seal string) bool {
	for _, one := range s {
		if hmac.Equal([]byte(one.Seal(purpose, text)), []byte(seal)) {
			return true
		}
	}
	return false
}

// Proves reports whether one of the secrets proves a record, as an event of a mesh.
func (s Secrets) Proves(mesh events.ID, r *events.Record) bool {
	return s.checker().by(mesh, r) != ""
}

// checker checks the proofs of many records. It is used by one goroutine.
type checker struct {
	secrets Secrets
	macs    []hash.Hash
	heads   []string // what a proof by each begins with
}

func (s Secrets) checker() *checker {
	c := &checker{secrets: s}
	for _, one := range s {
		c.macs = append(c.macs, hmac.New(sha256.New, one.Key))
		c.heads = append(c.heads, ProofBySecret+" "+one.ID()+" ")
	}
	return c
}

// strict takes one spelling of each value, so that nothing can be hidden in it.
var strict = base64.RawURLEncoding.Strict()

// by returns the id of the secret that proves a record, as an event of a mesh; empty:
// none does.
func (c *checker) by(mesh events.ID, r *events.Record) string {
	i := len(c.secrets) - 1
	for i >= 0 && c.secrets[i].From > r.Seq {
		i--
	}
	if i < 0 {
		return ""
	}
	text, ok := strings.CutPrefix(r.Get(events.HeaderProof), c.heads[i])
	var found, want [sha256.Size]byte
	if !ok || len(text) != strict.EncodedLen(len(found)) {
		return ""
	}
	if _, err := strict.Decode(found[:], []byte(text)); err != nil {
		return ""
	}
	m := c.macs[i]
	m.Reset()
	m.Write(events.ProofText(mesh, r.Seq, r.Get(events.HeaderChain)))
	if !hmac.Equal(m.Sum(want[:0]), found[:]) {
		return ""
	}
	return c.heads[i][len(ProofBySecret)+1 : len(c.heads[i])-1]
}

// proven is what a record tells of its writer by itself.
type proven struct {
	who   string // the id of the secret, or the key, that proves it
	stray bool   // it has a header that no event of its kind has
}

// prove finds out who proved the records that end a command.
func (c *chunk) prove(s Secrets) {
	c.proofs = make([]proven, len(c.recs))
	check, any := s.checker(), false
	for i := range c.recs {
		r := &c.recs[i]
		c.proofs[i].stray = r.Stray()
		if _, has := r.Header[events.HeaderProof]; !has {
			continue
		}
		any = true
		if !c.ends(i) {
			c.proofs[i].stray = true
		} else if len(s) > 0 {
			c.proofs[i].who = check.by(c.evs[i].Mesh, r)
		}
	}
	if any && len(s) == 0 {
		c.proveByKeys()
	}
}
