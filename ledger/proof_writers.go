package ledger

import (
	"bindery/events"
)

// Writers are the keys that may write a ledger on a server, each by the id of its
// grant. Where there is one, every command needs a proof by one of them.
type Writers struct{ keys map[events.ID]string }

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

// needs reports whether a command that ends at a sequence needs a proof.
func (a *assembler) needs(seq uint64) bool {
	if len(a.l.secrets) > 0 {
		return seq >= a.l.secrets.from()
	}
	return a.writers.any()
}

// proves reports whether a proof is one of who may write now.
func (a *assembler) proves(p proven) bool {
	if p.who == "" {
		return false
	}
	return len(a.l.secrets) > 0 || a.writers.has(p.who)
}
