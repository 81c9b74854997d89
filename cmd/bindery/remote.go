package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/ledger"
)

// natsContext is how a server is reached: a context of the NATS command line
// (its file, with the fields this program knows), or what the flags say.
type natsContext struct {
	URL   string `json:"url"`
	Creds string `json:"creds"` // file with a JWT and a seed
	NKey  string `json:"nkey"`  // file with a seed
	CA    string `json:"ca"`    // file with the certificates of who vouches for the server
	Cert  string `json:"cert"`
	Key   string `json:"key"`

	// What a join file has beside.
	Pinned string `json:"ca_pem,omitempty"` // the certificates that vouch for the server
	Mesh   string `json:"mesh,omitempty"`
}

// remote says which server is meant, and whether one is: what flags say comes
// before the environment, and a store that is named is nearer than a server that
// only the environment knows.
func (c *cli) remote() (natsContext, bool, error) {
	g, env := &c.globals, c.program.Getenv
	name, url, creds := g.context, g.server, g.creds
	if name == "" && url == "" {
		if g.store != "" || env("BINDERY_STORE") != "" {
			return natsContext{}, false, nil
		}
		name, url = env("NATS_CONTEXT"), env("NATS_URL")
	}
	if creds == "" {
		creds = env("NATS_CREDS")
	}
	if name == "" && url == "" {
		return natsContext{}, false, nil
	}
	var n natsContext
	if name != "" {
		var err error
		if n, err = readContext(env, name); err != nil {
			return n, true, err
		}
		c.contextURLs = append(c.contextURLs, n.URL)
	}
	if url != "" {
		n.URL = url
	}
	if creds != "" {
		n.Creds, n.NKey = creds, ""
	}
	return n, true, nil
}

// readContext reads a context of the NATS command line, or a join file by its path.
func readContext(env func(string) string, name string) (n natsContext, err error) {
	if strings.HasSuffix(name, ".json") {
		data, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(data, &n)
		}
		if err != nil {
			return n, usage("the join file cannot be read", err.Error(), do("access grant", "NAME").With("--join", "FILE"))
		}
		return n, nil
	}
	dir := env("XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(env("HOME"), ".config")
	}
	if filepath.Base(name) != name {
		return n, usage(fmt.Sprintf("%q is no name of a context", clip(name)), "", program("nats", "context", "ls"))
	}
	path := filepath.Join(dir, "nats", "context", name+".json")
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err != nil {
		return n, usage("the NATS context "+name+" cannot be read", err.Error(), program("nats", "context", "ls"))
	}
	return n, nil
}

// identity reads who logs in, and the key that signs what is asked.
func (n *natsContext) identity() (ledger.Key, nats.Option, error) {
	path := n.NKey
	if path == "" {
		path = n.Creds
	}
	if path == "" {
		return ledger.Key{}, nil, usage("who asks is not said", "requests are signed: a file with an nkey seed or credentials is needed",
			do("status").With("--server", publicURL(n.URL)).With("--creds", "FILE"))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return ledger.Key{}, nil, usage("the credentials cannot be read", err.Error(), program("ls", "-l", path))
	}
	pair, err := nkeys.ParseDecoratedUserNKey(data)
	if err != nil {
		return ledger.Key{}, nil, usage("there is no user's key in "+path, "it holds an nkey seed, or credentials of NATS", do("access keygen", "FILE"))
	}
	seed, err := pair.Seed()
	if err != nil {
		return ledger.Key{}, nil, err
	}
	key, err := ledger.ParseKey(seed)
	if err != nil {
		return key, nil, err
	}
	if _, err := nkeys.ParseDecoratedJWT(data); n.NKey == "" && err == nil && len(data) > len(seed)+2 {
		return key, nats.UserCredentials(path), nil
	}
	return key, key.Option(), nil
}

// login is how the context's user logs in; nothing where the server asks nobody.
func (n *natsContext) login() ([]nats.Option, error) {
	opts := connecting(-1)
	if n.Creds != "" || n.NKey != "" {
		_, as, err := n.identity()
		if err != nil {
			return nil, err
		}
		opts = append(opts, as)
	}
	if n.Pinned != "" {
		opts = append(opts, pinned(n.Pinned, ""))
	}
	if n.CA != "" {
		opts = append(opts, nats.RootCAs(n.CA))
	}
	if n.Cert != "" {
		opts = append(opts, nats.ClientCert(n.Cert, n.Key))
	}
	return opts, nil
}

// connect makes a connection as the context says.
func (n *natsContext) connect(more ...nats.Option) (*nats.Conn, error) {
	opts, err := n.login()
	if err != nil {
		return nil, err
	}
	return nats.Connect(cmp.Or(n.URL, nats.DefaultURL), append(opts, more...)...)
}

// openRemote opens a session with a service on a server.
func (c *cli) openRemote(ctx context.Context, n natsContext) (*session, error) {
	if n.URL == "" {
		return nil, usage("the NATS context has no url", "", program("nats", "context", "ls"))
	}
	key, _, err := n.identity()
	if err != nil {
		return nil, err
	}
	inbox := nats.CustomInboxPrefix(service.InboxOf(key.Public))
	nc, err := n.connect(inbox)
	if errors.Is(err, nats.ErrNkeysNotSupported) || errors.Is(err, nats.ErrNoServers) {
		// Servers that ask nobody who he is (where one of them is down, the client says
		// that there are none). What is asked is signed all the same.
		open := n
		open.Creds, open.NKey = "", ""
		if conn, unasked := open.connect(inbox); unasked == nil {
			nc, err = conn, nil
		}
	}
	if errors.Is(err, nats.ErrAuthorization) {
		// A server that is just taking up other grants turns away whom it should not.
		time.Sleep(askAgain)
		nc, err = n.connect(inbox)
	}
	if err != nil {
		return nil, notReached(n.URL, err)
	}
	s := &session{isServed: true, several: true, conn: nc}
	s.later(func() error { nc.Close(); return nil })
	who, err := c.ledgerOn(ctx, nc, n)
	if err == nil {
		s.mesh = who.Mesh
		s.client, err = service.NewClient(nc, s.mesh)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.client.SignWith(key, who).FailOver()
	return s, nil
}

// notReached says why a server is not reached.
func notReached(url string, err error) error {
	url = publicURL(url)
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		return refusal(commands.NotPermitted, "the server "+url+" does not let this key in", err.Error(), do("access list"))
	}
	return refusal(commands.Unreachable, "the server "+url+" is not reached", err.Error(), program("nats", "server", "check", "connection", "--server", url))
}

// ledgerOn asks which ledger is served there to the key that logs in. Where an
// instance is just taking over, it asks again until --timeout is over.
func (c *cli) ledgerOn(ctx context.Context, nc *nats.Conn, n natsContext) (service.Identity, error) {
	mesh := cmp.Or(c.globals.mesh, n.Mesh)
	ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	for {
		turn, cancel := context.WithTimeout(ctx, dialTimeout)
		found, err := service.Identities(turn, nc, mesh)
		cancel()
		switch {
		case err == nil && len(found) == 1 && (mesh == "" || found[0].Mesh == mesh):
			return found[0], nil
		case err == nil:
			return service.Identity{}, severalMeshes(mesh, found)
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return service.Identity{}, notServed(n.URL, mesh, nc.LastError())
		}
	}
}

// severalMeshes refuses to choose a ledger.
func severalMeshes(mesh string, found []service.Identity) error {
	r := refusal(commands.WrongMesh, "the server serves several meshes to this key", "which one is meant is not said", do("status").With("--mesh", found[0].Mesh))
	if mesh != "" {
		r.Message, r.Why = "the server does not serve mesh "+mesh+" to this key", "it serves another one"
	}
	for _, who := range found {
		r.Candidates = append(r.Candidates, commands.Candidate{Name: who.Mesh, Why: "--mesh " + who.Mesh})
	}
	return r
}

// notServed says that nobody answers for a ledger on a server.
func notServed(url, mesh string, last error) error {
	if errors.Is(last, nats.ErrPermissionViolation) {
		return refusal(commands.NotPermitted, "the server "+url+" does not let this key ask", last.Error(), do("access permissions"))
	}
	what := "no bindery serve on " + url + " answers this key"
	if mesh != "" {
		what += " for mesh " + mesh
	}
	return refusal(commands.Unreachable, what, "none runs there, or the key is not granted access", do("access list"))
}
