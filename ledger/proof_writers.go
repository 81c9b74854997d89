package ledger

import (
	"crypto/sha256"
	"maps"
	"strings"

	"github.com/nats-io/nkeys"

	"bindery/events"
)

// Writers are the keys that may write a ledger on a server, each by the id of its
// grant. Where there is one, every command needs a proof by one of them.
type Writers struct{ keys map[events.ID]string }

// NewWriters are the writers that a state knows; nil: there is none.
func NewWriters(keys map[events.ID]string) *Writers {
	if len(keys) == 0 {
		return nil
	}
	return &Writers{keys: keys}
}

// with are the writers after a grant (a key) or a revocation (no key).
func (w *Writers) with(grant events.ID, key string) *Writers {
	out := &Writers{keys: map[events.ID]string{}}
	if w != nil {
		maps.Copy(out.keys, w.keys)
	}
	if delete(out.keys, grant); key != "" {
		out.keys[grant] = key
	}
	return out
}

// any reports whether there is a key at all.
func (w *Writers) any() bool { return w != nil && len(w.keys) > 0 }

// has reports whether a key may write.
func (w *Writers) has(key string) bool {
	if w == nil {
		return false
	}
	for _, k := range w.keys {
		if k == key {
			return true
		}
	}
	return false
}

// needs reports whether a command that ends with a record needs a proof.
func (a *assembler) needs(r *events.Record) bool {
	switch {
	case a.l.ofStore:
		return len(a.l.secrets) > 0 && r.Seq >= a.l.secrets.from()
	case a.l.src != nil && strings.HasPrefix(r.Get(events.HeaderProof), ProofBySecret+" "):
		return false // it is read from a store, whose secret is not here
	}
	return r.Seq > a.l.restored && a.writers.any()
}

// proves reports whether a proof is one of who may write now.
func (a *assembler) proves(p proven) bool {
	if p.who == "" {
		return false
	}
	if a.l.ofStore {
		return len(a.l.secrets) > 0 // one of them: without any, nothing is known of a key
	}
	return a.writers.has(p.who)
}

// ProofByKey begins a proof by the key of a writer on a server.
const ProofByKey = "ed25519"

// Prove implements Prover: with the signature of the key.
func (k Key) Prove(mesh events.ID, seq uint64, chain string) (string, error) {
	sig, err := k.Sign(events.ProofText(mesh, seq, chain))
	if err != nil {
		return "", err
	}
	return ProofByKey + " " + k.Public + " " + strict.EncodeToString(sig), nil
}

// Sealing is a secret that only who has the key can make, to seal snapshots with.
func (k Key) Sealing() Secret {
	sig, err := k.Sign([]byte("bindery sealing secret 1\n"))
	if err != nil {
		return NewSecret(1) // it holds for this process alone
	}
	sum := sha256.Sum256(sig)
	return Secret{From: 1, Key: sum[:]}
}

// signature takes the proof of a record by a key apart.
func signature(r *events.Record) (key string, sig []byte) {
	scheme, rest, _ := strings.Cut(r.Get(events.HeaderProof), " ")
	key, text, _ := strings.Cut(rest, " ")
	if scheme != ProofByKey || events.CheckNKey(key) != nil {
		return "", nil
	}
	sig, err := strict.DecodeString(text)
	if err != nil {
		return "", nil
	}
	return key, sig
}

// signed reports whether the key that a record names has signed it.
func signed(mesh events.ID, r *events.Record) bool {
	key, sig := signature(r)
	pair, err := nkeys.FromPublicKey(key)
	return err == nil && pair.Verify(events.ProofText(mesh, r.Seq, r.Get(events.HeaderChain)), sig) == nil
}

// proveByKeys finds out which key proved the records that end a command. A signature
// is made over a chain value, so it vouches for all that the event stands on as well: of
// commands that follow one another and name the same key, only the last is checked.
func (c *chunk) proveByKeys() {
	for i := len(c.recs) - 1; i >= 0; i-- {
		key := c.named(i)
		if key == "" || !signed(c.evs[i].Mesh, &c.recs[i]) {
			continue
		}
		c.proofs[i].who = key
		for i > 0 && c.linked[i] {
			before := c.named(i - 1)
			if before != key && (before != "" || c.ends(i-1)) {
				break
			}
			if i--; before == key {
				c.proofs[i].who = key
			}
		}
	}
}

// named is the key that the end of a command names as its writer.
func (c *chunk) named(i int) string {
	if !c.ends(i) {
		return ""
	}
	key, _ := signature(&c.recs[i])
	return key
}

// ends reports whether a record ends a command.
func (c *chunk) ends(i int) bool {
	k, n, err := events.ParseBatch(c.recs[i].Get(events.HeaderBatch))
	return err == nil && k == n
}

// noteAccess folds what a command says of the ledger's writers, and of what was
// acknowledged.
func (a *assembler) noteAccess(evs []events.Event, recs []events.Record) {
	for i := range evs {
		data := evs[i].Data
		if data == nil && i < len(recs) { // only what stands in the headers was read
			if kind := recs[i].Get(events.HeaderType); !strings.HasPrefix(kind, "bindery.access.") && !strings.HasPrefix(kind, "bindery.mesh.") {
				continue
			}
			e, err := events.Decode(&recs[i])
			if err != nil {
				continue // of a later version: it says nothing of this one's writers
			}
			evs[i].Entity, data = e.Entity, e.Data
		}
		switch p := data.(type) {
		case *events.MeshRecovered:
			a.l.noteRecovered(evs[i].Seq)
		case *events.AccessGranted:
			if p.Role == events.RoleWriter {
				a.writers = a.writers.with(evs[i].Entity, p.NKey)
			}
		case *events.AccessRevoked:
			if a.writers.any() {
				a.writers = a.writers.with(evs[i].Entity, "")
			}
		}
	}
}
