package e2e

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"bindery/ledger"
)

// natsServer is a NATS server that is not bindery's own, with a configuration file.
type natsServer struct {
	*server.Server
	accounts string // the file that is included
}

// natsServers starts n of them, a cluster where there are several, with a block of
// accounts as bindery access permissions prints it; without one they let in everybody.
func natsServers(t *testing.T, n int, accounts string) []*natsServer {
	t.Helper()
	routes := make([]string, n)
	for i := range routes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		routes[i] = l.Addr().String()
		_ = l.Close()
	}
	out := make([]*natsServer, n)
	for i := range out {
		dir := t.TempDir()
		out[i] = &natsServer{accounts: write(t, filepath.Join(dir, "bindery.conf"), accounts)}
		text := fmt.Sprintf("server_name: s%d\nlisten: 127.0.0.1:-1\njetstream { store_dir: %q, sync_interval: always }\ninclude ./bindery.conf\n", i, filepath.Join(dir, "js"))
		if n > 1 {
			text += fmt.Sprintf("cluster { name: c, listen: %q, routes: [ nats://%s ] }\n", routes[i], strings.Join(routes, ", nats://"))
		}
		opts, err := server.ProcessConfigFile(write(t, filepath.Join(dir, "nats.conf"), text))
		if err != nil {
			t.Fatal(err)
		}
		opts.NoLog, opts.NoSigs = true, true
		if out[i].Server, err = server.NewServer(opts); err != nil {
			t.Fatal(err)
		}
		out[i].Start()
		t.Cleanup(func() { out[i].Shutdown(); out[i].WaitForShutdown() })
	}
	for _, s := range out {
		eventually(t, "a server", func() bool { return s.ReadyForConnections(time.Second) && (n == 1 || s.NumRoutes() > 0) })
	}
	eventually(t, "a meta leader", func() bool {
		for _, s := range out {
			if n == 1 || s.JetStreamIsLeader() {
				return true
			}
		}
		return false
	})
	return out
}

// urls are where the servers listen.
func urls(servers []*natsServer) (out []string) {
	for _, s := range servers {
		out = append(out, s.ClientURL())
	}
	return out
}

// reload has the servers take another block of accounts.
func reload(t *testing.T, servers []*natsServer, accounts string) {
	t.Helper()
	for _, s := range servers {
		if err := os.WriteFile(s.accounts, []byte(accounts), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Reload(); err != nil {
			t.Fatal(err)
		}
	}
}

// keyring has the files of keys, and what is public of them.
type keyring struct {
	t      *testing.T
	dir    string
	public map[string]string
	creds  map[string]string // files of credentials, where accounts are JWTs, by name
}

func newKeyring(t *testing.T, names ...string) *keyring {
	t.Helper()
	k := &keyring{t: t, dir: t.TempDir(), public: map[string]string{}, creds: map[string]string{}}
	for _, name := range names {
		k.public[name] = strings.TrimSpace(newCLI(t).must(t, "access", "keygen", k.file(name)))
	}
	return k
}

// file is the file of a key.
func (k *keyring) file(name string) string { return filepath.Join(k.dir, name) }

// login is the file that somebody logs in with.
func (k *keyring) login(name string) string { return cmp.Or(k.creds[name], k.file(name)) }

// key reads a key.
func (k *keyring) key(name string) ledger.Key {
	k.t.Helper()
	seed, err := os.ReadFile(k.file(name))
	if err != nil {
		k.t.Fatal(err)
	}
	key, err := ledger.ParseKey([]byte(strings.TrimSpace(string(seed))))
	if err != nil {
		k.t.Fatal(err)
	}
	return key
}

// permissions is the block of accounts for the mesh home: of the serving processes,
// whose keys are writer and answers, and of those that are granted.
func (k *keyring) permissions(granted ...string) string {
	k.t.Helper()
	args := []string{"access", "permissions", "--mesh", "home", "--writer-nkey", k.public["writer"], "--answers-nkey", k.public["answers"]}
	for _, name := range granted {
		args = append(args, "--nkey", k.public[name])
	}
	return newCLI(k.t).must(k.t, args...)
}

// prime has each server work out, one after the other, how the requests of every key come
// in. It does that when somebody first listens to them, and two that do so at once are a
// race in nats-server 2.15 (server/client.go, addShadowSub), which is none of ours.
func (k *keyring) prime(t *testing.T, servers []*natsServer) {
	t.Helper()
	for _, s := range servers {
		as := k.key("answers").Option()
		if file := k.creds["answers"]; file != "" {
			as = nats.UserCredentials(file)
		}
		nc, err := nats.Connect(s.ClientURL(), as)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range k.public {
			sub, err := nc.SubscribeSync("bindery-req.home." + key + ".prime")
			if err != nil {
				t.Fatal(err)
			}
			_ = sub.Unsubscribe()
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		nc.Close()
	}
}

// on is the command line of somebody with a key, at servers.
func (k *keyring) on(url, name string) *cli {
	k.t.Helper()
	c := newCLI(k.t)
	c.env = []string{"BINDERY_STORE=", "NATS_URL=" + url, "NATS_CREDS=" + k.login(name)}
	return c
}
