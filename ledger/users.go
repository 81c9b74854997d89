package ledger

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// User may connect to a listening server, and do there what its subjects allow.
type User struct {
	Key       string   // public nkey, U…
	Publish   []string // subjects it may publish to; nil: all
	Subscribe []string // subjects it may listen on; nil: all
}

// nkeyUsers are users as the server knows them. Whoever may not publish
// somewhere may answer nowhere, either.
func nkeyUsers(users []User) []*server.NkeyUser {
	out := make([]*server.NkeyUser, 0, len(users))
	for _, u := range users {
		n := &server.NkeyUser{Nkey: u.Key}
		if u.Publish != nil || u.Subscribe != nil {
			n.Permissions = &server.Permissions{Publish: permission(u.Publish), Subscribe: permission(u.Subscribe)}
		}
		out = append(out, n)
	}
	return out
}

// SetUsers changes who may connect, beside this process itself, while the server
// runs: connections of those who no longer may are closed.
func (e *Embedded) SetUsers(users []User) error {
	if e.self == nil {
		return errors.New("the server lets in whoever reaches it")
	}
	opts := e.opts.Clone()
	if at, ok := e.srv.Addr().(*net.TCPAddr); ok {
		opts.Port = at.Port // what was asked for may have been any
	}
	opts.Nkeys = nkeyUsers(append([]User{{Key: e.self.Public}}, users...))
	if err := e.srv.ReloadOptions(opts); err != nil {
		return fmt.Errorf("changing who may connect: %w", err)
	}
	// The server makes it whenever options are set anew, and puts nothing in it
	// (server/ocsp.go, setupOCSPStapleStoreDir).
	_ = os.Remove(filepath.Join(opts.StoreDir, "ocsp"))
	e.opts = opts
	return nil
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
