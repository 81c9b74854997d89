package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/commands/readmodel"
	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

const testMesh = "home"

// childEnv makes the test binary an agent instead of running tests: what is killed
// is a process.
const childEnv = "BINDERY_AGENT_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		childAgent(spec)
		return
	}
	os.Exit(m.Run())
}

// world is a ledger that is served over TCP, with its documents, and a place for
// the agents' trees and the toy service.
type world struct {
	t    testing.TB
	dir  string // of the store
	srv  *ledger.Embedded
	h    *handler.Handler
	down func() // stops serving

	otherService func() // answers instead of the one that answers now

	late  time.Duration // so much later than that the documents are kept
	mesh  events.ID
	home  string // HOME of the hooks
	hooks string
	local ledger.Key            // of whoever reads the store's files
	keys  map[string]ledger.Key // of the agents, by node; granted or not
	seeds map[string]string     // of those that are granted
}

// patience bounds everything that is waited for. It is no measure.
const patience = 2 * time.Minute

var (
	ids   = handler.NewIDs(time.Now)
	idsMu sync.Mutex
)

func newID() events.ID {
	idsMu.Lock()
	defer idsMu.Unlock()
	return ids()
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), home: t.TempDir(), hooks: filepath.Join(t.TempDir(), "hooks"),
		keys: map[string]ledger.Key{}, seeds: map[string]string{}}
	w.local = w.key()
	for _, node := range []string{"alpha", "beta"} {
		w.keys[node] = w.key()
	}
	w.up(func(ctx context.Context, nc *nats.Conn) (*ledger.Log, error) {
		return ledger.Create(ctx, nc, testMesh, ledger.CreateOptions{})
	})
	w.do(commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"},
		commands.DefineProvision{Name: "logins", Scope: events.ScopeNode},
		commands.RegisterProvider{Name: "toy", Provision: "logins", Node: "alpha", Endpoint: "alpha.home.arpa:1234"},
		commands.DeclareModule{Name: "wiki", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "logins"}}}})
	w.h.View(func(s *projections.State) { w.mesh = s.Mesh.ID })
	w.must(os.Mkdir(filepath.Join(w.home, "toy-logins"), 0o700))
	w.hook("provider", journalled("../../../docs/agent/hooks/provider/toy"))
	w.hook("consumer", "#!/bin/sh\ncat >> $HOME/consumed\necho >> $HOME/consumed\n")
	return w
}

func (w *world) key() ledger.Key {
	w.t.Helper()
	key, err := ledger.NewKey()
	w.must(err)
	return key
}

// guests are those whom the server lets in from outside, and whose requests are heard.
func (w *world) guests() (keys []string, out []ledger.Guest) {
	for _, key := range append(slices.Collect(maps.Values(w.keys)), w.local) {
		keys, out = append(keys, key.Public), append(out, service.GuestOf(testMesh, key.Public))
	}
	return keys, out
}

// journalled is a hook that writes down what it reads, fails while a file "broken"
// is there, and has another do the work.
func journalled(script string) string {
	abs, _ := filepath.Abs(script)
	return "#!/bin/sh\nask=$(cat)\nprintf '%s\\n' \"$ask\" >> $HOME/journal\n" +
		"[ -e $HOME/broken ] && { echo starting >&2; echo the toy is broken >&2; exit 3; }\nprintf '%s' \"$ask\" | " + abs + "\n"
}

// hook writes a default hook of a side.
func (w *world) hook(side, text string) {
	w.t.Helper()
	dir := filepath.Join(w.hooks, side)
	w.must(os.MkdirAll(dir, 0o755))
	w.must(os.WriteFile(filepath.Join(dir, "new"), []byte(text), 0o755))
	w.must(os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "default"))) // one that runs is not written
}

// up serves a ledger over TCP and keeps its documents, until down.
func (w *world) up(open func(context.Context, *nats.Conn) (*ledger.Log, error)) {
	w.t.Helper()
	var closes []func()
	later := func(f func()) { closes = append(closes, f) }
	w.down = sync.OnceFunc(func() {
		for _, f := range slices.Backward(closes) {
			f()
		}
	})
	w.t.Cleanup(w.down)
	var err error
	w.srv, err = ledger.StartEmbedded(w.t.Context(), ledger.EmbeddedConfig{Dir: w.dir, Listen: true, Host: "127.0.0.1", Port: -1, Users: []ledger.User{},
		Adjust: func(o *server.Options) { o.SyncAlways = false }}) // nothing but agents is killed here
	w.must(err)
	later(w.srv.Close)
	nc, err := w.srv.Connect()
	w.must(err)
	later(nc.Close)
	log, err := open(w.t.Context(), nc)
	w.must(err)
	keeper := readmodel.New(readmodel.Config{Log: log, Logger: slog.New(slog.DiscardHandler)})
	w.h, err = handler.Open(w.t.Context(), handler.Config{Log: log, Observe: keeper.Note})
	w.must(err)
	later(w.h.Close)
	fresh := false
	w.h.View(func(s *projections.State) { fresh = s.Seq == 0 })
	if fresh {
		w.do(commands.CreateMesh{Name: testMesh})
	}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if sleep(ctx, w.late) {
			_ = keeper.Run(ctx, nc, w.h)
		}
	})
	later(func() { stop(); done.Wait() })
	keys, guests := w.guests()
	w.must(w.srv.SetGuests(guests))
	var s *service.Service
	serve := func() {
		var err error
		s, err = service.Serve(service.Config{Conn: nc, Mesh: testMesh, Handler: w.h, Log: log, Version: "0.0.0", Keeper: keeper,
			Door: service.Door{Signed: true, Local: w.local.Public}, Agents: service.NewAgentStore(nc, testMesh, readmodel.Where{}),
			Ledger: log.Created()})
		w.must(err)
		w.must(s.Admit(keys))
	}
	serve()
	w.otherService = func() { w.must(s.Stop()); serve() }
	later(func() { _ = s.Stop() })
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) do(cs ...commands.Command) {
	w.t.Helper()
	for _, c := range cs {
		if _, err := w.h.Do(w.t.Context(), commands.Request{Command: c, ID: newID(), Actor: "ann", Reason: "a trial"}); err != nil {
			w.t.Fatalf("%s %+v: %v", c.Verb(), c, err)
		}
	}
}

func (w *world) node(name string) (id events.ID) {
	w.t.Helper()
	w.h.View(func(s *projections.State) { id = s.Node(s.NodeNamed(name)).ID })
	return id
}

// grant grants the key of a node's agent.
func (w *world) grant(node string) {
	w.t.Helper()
	var err error
	w.seeds[node], err = w.keys[node].Seed()
	w.must(err)
	w.do(commands.GrantAccess{Name: "on-" + node, Role: events.RoleAgent, Node: node, NKey: w.keys[node].Public})
}

// spec is what an agent of a test is to be.
type spec struct {
	URL, MeshID, Node, NodeID, Root, Hooks, Home, Log string

	Seed  string // of a granted key; "": it is local
	Local string // seed of the store's own key

	Resync  bool
	CrashAt string // step at which it kills itself, the first time it comes there
}

func (w *world) spec(node string) spec {
	w.t.Helper()
	local, err := w.local.Seed()
	w.must(err)
	return spec{Local: local, URL: w.srv.URL(), MeshID: w.mesh.String(), Node: node, NodeID: w.node(node).String(), Hooks: w.hooks, Home: w.home,
		Root: filepath.Join(w.home, "root-"+node), Log: filepath.Join(w.home, "log-"+node), Seed: w.seeds[node]}
}

// agent makes the agent of a spec, with delays that a test can wait for.
func (s spec) agent() (*Agent, error) {
	key, err := ledger.ParseKey([]byte(cmp.Or(s.Seed, s.Local)))
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(s.URL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), key.Option(),
		nats.CustomInboxPrefix(service.InboxOf(key.Public)))
	if err != nil {
		return nil, err
	}
	client, err := service.NewClient(nc, testMesh)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	who, err := service.Identities(ctx, nc, testMesh)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	meshID, err := events.ParseID(s.MeshID)
	if err != nil {
		return nil, err
	}
	nodeID, err := events.ParseID(s.NodeID)
	if err != nil {
		return nil, err
	}
	cfg := Config{Ledger: &asks{client.SignWith(key, who[0]), nc}, Mesh: testMesh, MeshID: meshID, Node: s.Node, NodeID: nodeID, Root: s.Root, GroupID: -1,
		Hooks: s.Hooks, HookTimeout: 20 * time.Second, SecretsIn: schemeFile, Resync: s.Resync,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Getenv: func(name string) string {
			if name == "HOME" {
				return s.Home
			}
			return os.Getenv(name)
		}}
	if s.Seed != "" {
		cfg.Key, cfg.SecretsIn = &key, schemeSealed
	}
	a, err := New(cfg)
	if err != nil {
		return nil, err
	}
	a.delay = func(n int) time.Duration { return min(20*time.Millisecond<<min(n, 10), 200*time.Millisecond) }
	return a, nil
}

// asks is a Ledger over a client.
type asks struct {
	*service.Client
	nc *nats.Conn
}

// hangUp closes an agent's connection.
func (a *Agent) hangUp() {
	switch l := a.cfg.Ledger.(type) {
	case *asks:
		l.nc.Close()
	case *bent:
		l.nc.Close()
	}
}

// bent is a Ledger whose answers somebody has changed.
type bent struct {
	*asks
	documents func(*service.Documents)
	sealed    func(*service.SealedAnswer)
}

// bend has an agent that does not run yet get changed answers.
func bend(a *Agent) *bent {
	b := &bent{asks: a.cfg.Ledger.(*asks), documents: func(*service.Documents) {}, sealed: func(*service.SealedAnswer) {}}
	a.cfg.Ledger = b
	return b
}

func (b *bent) Documents(ctx context.Context, q service.DocumentsQuery) (service.Documents, error) {
	d, err := b.asks.Documents(ctx, q)
	b.documents(&d)
	return d, err
}

func (b *bent) Sealed(ctx context.Context, r service.SealedRequest) (service.SealedAnswer, error) {
	s, err := b.asks.Sealed(ctx, r)
	b.sealed(&s)
	return s, err
}

func (a *asks) Do(ctx context.Context, c commands.Command, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := a.Client.Do(ctx, commands.Request{Command: c, ID: newID(), Actor: "agent", Reason: reason})
	return err
}

func (a *asks) Ask(ctx context.Context, q commands.Query, v any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	data, err := a.Client.Ask(ctx, q)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

func (a *asks) CheckCursor(ctx context.Context, at service.Cursor) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return a.Client.CheckCursor(ctx, at)
}

// childAgent is an agent as a process. It ends well when its standard input does.
func childAgent(text string) {
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	var s spec
	die(json.Unmarshal([]byte(text), &s))
	a, err := s.agent()
	die(err)
	a.crash = func(step string) {
		if step == s.CrashAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	a.cfg.Ready = func() { fmt.Println("ready") }
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	die(a.Run(ctx))
}

// process is an agent that runs as a process.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	stop  func() // in order
}

func (w *world) spawn(s spec) *process {
	w.t.Helper()
	text, err := json.Marshal(s)
	w.must(err)
	p := &process{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	w.must(err)
	w.must(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	p.stop = func() { in.Close(); <-p.ended }
	w.t.Cleanup(p.stop)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// start runs an agent in this process until stop is called, which returns how it
// ended.
func (w *world) start(a *Agent) (stop func() error) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		a.hangUp()
		return err
	})
	w.t.Cleanup(func() { _ = stop() })
	return stop
}

func (w *world) agent(s spec) *Agent {
	w.t.Helper()
	a, err := s.agent()
	w.must(err)
	return a
}

// eventually waits until f finds nothing wrong.
func (w *world) eventually(what string, f func() error) {
	w.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	logs, _ := filepath.Glob(filepath.Join(w.home, "log-*"))
	for _, l := range logs {
		data, _ := os.ReadFile(l)
		w.t.Logf("%s:\n%s", l, data)
	}
	w.t.Fatalf("%s: %v", what, err)
}

// settled reports what the ledger says is still to be done.
func (w *world) settled() (err error) {
	w.h.View(func(s *projections.State) {
		for _, v := range s.ListBindings(projections.BindingFilter{}).Items {
			if v.Use.Provider == "" || v.AppliedSeq < v.ChangedSeq || v.Error != "" || v.Released || len(v.Flags) > 0 {
				err = fmt.Errorf("%s/%s: %+v", v.Assignment, v.Slot, v)
			}
		}
		for _, c := range s.ListCredentials(projections.CredentialFilter{}).Items {
			if c.State != "adopted" {
				err = fmt.Errorf("%s/%s generation %d is %s: %s", c.Assignment, c.Slot, c.Generation, c.State, c.Error)
			}
		}
	})
	return err
}

// live are the user names of all credentials that log in by the ledger.
func (w *world) live() map[string]bool {
	out := map[string]bool{}
	w.h.View(func(s *projections.State) {
		for i := 1; i <= s.BindingCount(); i++ {
			for _, d := range s.HolderDocuments(projections.BindingRef(i)) {
				out[userName(d.Binding.String(), d.Generation, d.Tag)] = true
			}
		}
	})
	return out
}

// logins are what the toy service lets in: passwords by user name.
func (w *world) logins() map[string]string {
	w.t.Helper()
	dir := filepath.Join(w.home, "toy-logins")
	names, err := os.ReadDir(dir)
	w.must(err)
	out := map[string]string{}
	for _, n := range names {
		data, err := os.ReadFile(filepath.Join(dir, n.Name()))
		w.must(err)
		out[n.Name()] = strings.TrimSpace(string(data))
	}
	return out
}

// exact reports what is not as it must be when everything is done: whom the service
// lets in, what the consumers read, and everything else in the agents' trees.
func (w *world) exact(nodes ...string) error {
	if err := w.settled(); err != nil {
		return err
	}
	logins := w.logins()
	if live := w.live(); !slices.Equal(slices.Sorted(maps.Keys(live)), slices.Sorted(maps.Keys(logins))) {
		return fmt.Errorf("the service lets in %v, and the ledger says %v", logins, live)
	}
	var err error
	w.h.View(func(s *projections.State) {
		for _, node := range nodes {
			var there []projections.BindingView
			for _, v := range s.ListBindings(projections.BindingFilter{}).Items {
				if v.Node == node {
					there = append(there, v)
				}
			}
			err = errors.Join(err, w.exactFiles(filepath.Join(w.home, "root-"+node), there, logins), w.exactTree(node))
		}
	})
	return err
}

// exactFiles holds what consumers read against what they shall run with.
func (w *world) exactFiles(root string, there []projections.BindingView, logins map[string]string) error {
	names := map[string]bool{}
	for _, v := range there {
		names[v.Assignment] = true
		got := map[string]string{}
		dir := filepath.Join(root, "bindings", "by-name", v.Assignment, v.Slot)
		files, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return err
			}
			got[f.Name()] = string(data)
		}
		host, port := hostPort(v.Use.Endpoint)
		want := map[string]string{"type": v.Provision, "provider": v.Use.Provider, "host": host, "port": port, "realm": "toy",
			"username": got["username"], "password": logins[got["username"]]}
		if !maps.Equal(got, want) || want["password"] == "" || !strings.Contains(got["username"], fmt.Sprintf("_%d_", v.Use.Generation)) {
			return fmt.Errorf("%s/%s reads %v, want %v", v.Assignment, v.Slot, got, want)
		}
	}
	return sameNames(filepath.Join(root, "bindings", "by-name"), slices.Collect(maps.Keys(names)))
}

func sameNames(dir string, want []string) error {
	found, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	got := []string{}
	for _, f := range found {
		got = append(got, f.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, append([]string{}, want...)) {
		return fmt.Errorf("%s has %v, want %v", dir, got, want)
	}
	return nil
}

// exactTree looks for what should be gone, and for modes.
func (w *world) exactTree(node string) error {
	root := filepath.Join(w.home, "root-"+node)
	live := w.live()
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o077 != 0 {
			return fmt.Errorf("%s has mode %s", name, info.Mode())
		}
		parts := strings.Split(name, "/")
		switch {
		case strings.HasPrefix(e.Name(), ".new-"), strings.HasPrefix(e.Name(), ".link-"):
			return fmt.Errorf("%s was left", name)
		case (parts[0] == dirIssued || parts[0] == dirSecrets) && len(parts) == 3:
			generation, tag, _ := strings.Cut(parts[2], "-")
			tag, _, _ = strings.Cut(tag, "-") // a secret's name says who made it, too
			if user := "b" + strings.ToLower(parts[1][16:]) + "_" + generation + "_" + tag; !live[user] {
				return fmt.Errorf("%s is left of a credential that is over", name)
			}
		case len(parts) == 4 && parts[2] == dirSets:
			slot, _, _ := strings.Cut(parts[3], "-")
			target, _ := os.Readlink(filepath.Join(root, parts[0], parts[1], slot))
			if target != dirSets+"/"+parts[3] {
				return fmt.Errorf("%s is not what the slot leads to (%s)", name, target)
			}
		}
		return nil
	})
}
