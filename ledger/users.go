package ledger

import (
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// User is a user in the ledger's own account: the process itself, and what answers
// for it. Nobody else is let in there.
type User struct {
	Key       string   // public nkey, U…
	Publish   []string // subjects it may publish to; nil: all
	Subscribe []string // subjects it may listen on; nil: all
}

// Guest is a user in an account of its own, which nobody else enters and in which
// nothing is stored. What crosses between that account and the ledger's is listed
// here; nothing else does. So what a guest sends reaches no subject of the ledger's
// account but those of Sends, and no answer the server itself gives (an error, a
// trace, what somebody else stored) leaves the guest's account.
type Guest struct {
	Key   string     // public nkey, U…; its account has the same name
	Sends []Crossing // what it may publish
	Hears string     // what it may listen on: subjects of the same name in the ledger's account
}

// Crossing is a subject that a guest publishes to, and what it is called in the
// ledger's account. There it names the guest's key, which so is proven by the server.
type Crossing struct{ From, To string }

// permissions are a user's rights as the server knows them. Whoever may not publish
// somewhere may answer nowhere, either.
func (u *User) permissions() *server.Permissions {
	if u.Publish == nil && u.Subscribe == nil {
		return nil
	}
	return &server.Permissions{Publish: permission(u.Publish), Subscribe: permission(u.Subscribe)}
}

func (g *Guest) permissions() *server.Permissions {
	var publish []string
	for _, c := range g.Sends {
		publish = append(publish, c.From)
	}
	return &server.Permissions{Publish: permission(publish), Subscribe: permission([]string{g.Hears})}
}

func permission(subjects []string) *server.SubjectPermission {
	if subjects == nil {
		return nil
	}
	if len(subjects) == 0 {
		return &server.SubjectPermission{Deny: []string{">"}}
	}
	return &server.SubjectPermission{Allow: subjects}
}

// Key is a new user's key pair; it lives as long as the process.
type Key struct {
	Public string
	pair   nkeys.KeyPair
}

// NewKey makes a key pair for a user.
func NewKey() (Key, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return Key{}, fmt.Errorf("making a key: %w", err)
	}
	return keyOf(pair)
}

// ParseKey reads a user's seed, SU….
func ParseKey(seed []byte) (Key, error) {
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		return Key{}, fmt.Errorf("reading a key's seed: %w", err)
	}
	return keyOf(pair)
}

func keyOf(pair nkeys.KeyPair) (Key, error) {
	public, err := pair.PublicKey()
	if err != nil {
		return Key{}, fmt.Errorf("reading a key: %w", err)
	}
	if !nkeys.IsValidPublicUserKey(public) {
		return Key{}, fmt.Errorf("%s is the key of no user", public)
	}
	return Key{Public: public, pair: pair}, nil
}

// Seed is the secret half, to be kept in a file that only its owner reads.
func (k Key) Seed() (string, error) {
	seed, err := k.pair.Seed()
	return string(seed), err
}

// Sign signs with the secret half.
func (k Key) Sign(data []byte) ([]byte, error) { return k.pair.Sign(data) }

// Option logs in with the key.
func (k Key) Option() nats.Option { return nats.Nkey(k.Public, k.pair.Sign) }
