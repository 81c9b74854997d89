package ledger

import (
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// GuestConnections is how many connections a guest may have at a time.
const GuestConnections = 64

// GuestSubscriptions is how many subscriptions one connection may have: an answer is
// sent to each of them that it is for. Nobody needs more than one for the answers to
// its requests, and one for each consumer of documents.
const GuestSubscriptions = 128

// gate decides who connects to an embedded server that listens, and into which
// account. It is asked by the server for each new connection, so that who may
// connect changes without the server being reconfigured.
type gate struct {
	mu    sync.Mutex // guards what follows
	users map[string]*server.User
	made  map[string]*server.Account // of guests, also of those who are gone
	shut  map[string]time.Time       // guests that are turned away until then
}

var _ server.Authentication = (*gate)(nil)

func newGate(users []User) *gate {
	g := &gate{users: map[string]*server.User{}, made: map[string]*server.Account{}, shut: map[string]time.Time{}}
	for i := range users {
		g.users[users[i].Key] = &server.User{Username: users[i].Key, Permissions: users[i].permissions()}
	}
	return g
}

// Check implements server.Authentication: the client has signed the server's nonce
// with the key that it names (server/auth.go does the same for configured users).
func (g *gate) Check(c server.ClientAuthentication) bool {
	if c.Kind() != server.CLIENT {
		return false
	}
	o := c.GetOpts()
	user := g.user(o.Nkey)
	if user == nil || !signedNonce(o.Nkey, o.Sig, c.GetNonce()) {
		return false
	}
	if user.Account != nil && user.Account.NumLocalConnections() >= GuestConnections {
		return false
	}
	c.RegisterUser(user)
	return true
}

func (g *gate) user(key string) *server.User {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until, ok := g.shut[key]; ok {
		if time.Now().Before(until) {
			return nil
		}
		delete(g.shut, key)
	}
	return g.users[key]
}

func signedNonce(key, sig string, nonce []byte) bool {
	signature, err := base64.RawURLEncoding.DecodeString(sig)
	if err != nil {
		// Clients that encode otherwise (server/auth.go).
		if signature, err = base64.StdEncoding.DecodeString(sig); err != nil {
			return false
		}
	}
	public, err := nkeys.FromPublicKey(key)
	return err == nil && len(nonce) > 0 && public.Verify(nonce, signature) == nil
}

var errNoGate = errors.New("the server lets in whoever reaches it")

// SetGuests changes who may connect from outside. Connections of those who no
// longer may are closed. Whoever listens for what a new guest sends must subscribe
// after this: the server connects two accounts only for later subscriptions.
func (e *Embedded) SetGuests(guests []Guest) error {
	if e.gate == nil {
		return errNoGate
	}
	g := e.gate
	next := make(map[string]*server.User, len(guests))
	for i := range guests {
		account, err := e.accountOf(&guests[i])
		if err != nil {
			return fmt.Errorf("letting %s connect: %w", guests[i].Key, err)
		}
		next[guests[i].Key] = &server.User{Username: guests[i].Key, Account: account, Permissions: guests[i].permissions()}
	}
	var gone []string
	g.mu.Lock()
	for key, user := range g.users {
		switch {
		case user.Account == nil:
			next[key] = user // of the ledger's own account
		case next[key] == nil:
			gone = append(gone, key)
		}
	}
	g.users = next
	g.mu.Unlock()
	for _, key := range gone {
		e.disconnect(key)
	}
	return nil
}

// accountOf makes a guest's account, and what crosses between it and the ledger's.
func (e *Embedded) accountOf(guest *Guest) (*server.Account, error) {
	g := e.gate
	g.mu.Lock()
	account := g.made[guest.Key]
	g.mu.Unlock()
	if account != nil {
		return account, nil
	}
	own := e.srv.GlobalAccount()
	account, err := e.srv.RegisterAccount(guest.Key)
	if err != nil {
		return nil, err
	}
	for _, c := range guest.Sends {
		if err := account.AddStreamExport(c.From, []*server.Account{own}); err != nil {
			return nil, err
		}
		if err := own.AddMappedStreamImport(account, c.From, c.To); err != nil {
			return nil, err
		}
	}
	if err := own.AddStreamExport(guest.Hears, []*server.Account{account}); err != nil {
		return nil, err
	}
	if err := account.AddStreamImport(own, guest.Hears, ""); err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.made[guest.Key] = account
	g.mu.Unlock()
	return account, nil
}

// Listeners is how many subscriptions of a guest an answer on a subject goes to.
func (e *Embedded) Listeners(key, subject string) int {
	if e.gate == nil {
		return 0
	}
	e.gate.mu.Lock()
	account := e.gate.made[key]
	e.gate.mu.Unlock()
	if account == nil {
		return 0
	}
	return account.Interest(subject)
}

// TurnAway closes a guest's connections, and lets it connect again only after a
// while.
func (e *Embedded) TurnAway(key string, d time.Duration) {
	if e.gate == nil {
		return
	}
	e.gate.mu.Lock()
	e.gate.shut[key] = time.Now().Add(d)
	e.gate.mu.Unlock()
	e.disconnect(key)
}

// disconnect closes the connections of a guest.
func (e *Embedded) disconnect(key string) {
	open, err := e.srv.Connz(&server.ConnzOptions{Account: key, Limit: 4 * GuestConnections})
	if err != nil {
		return
	}
	for _, c := range open.Conns {
		_ = e.srv.DisconnectClientByID(c.Cid) // it may have gone by itself
	}
}
