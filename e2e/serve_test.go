package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/ledger"
)

// serving is a bindery serve that runs.
type serving struct {
	cmd  *exec.Cmd
	errs *lockedBuffer
	done chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts a bindery serve on the store and returns when it says how it is
// reached.
func (c *cli) serve(t testing.TB, args ...string) *serving {
	t.Helper()
	s := &serving{cmd: c.command(context.Background(), append([]string{"serve"}, args...)...), errs: &lockedBuffer{}, done: make(chan error, 1)}
	s.cmd.Stderr = s.errs
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	eventually(t, "serving", func() bool {
		if len(s.done) > 0 {
			t.Fatalf("it ended: %s", s.errs)
		}
		return strings.Contains(s.errs.String(), "msg=serving")
	})
	return s
}

// stop sends a signal and waits for the end.
func (s *serving) stop(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.done:
		if sig != syscall.SIGKILL && err != nil {
			t.Fatalf("it ended with %v\n%s", err, s.errs)
		}
	case <-time.After(patience):
		t.Fatalf("it does not end\n%s", s.errs)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// following is a bindery that runs on and prints lines.
type following struct {
	cmd   *exec.Cmd
	lines chan string
	errs  *lockedBuffer
}

func (c *cli) following(t testing.TB, args ...string) *following {
	t.Helper()
	f := &following{cmd: c.command(context.Background(), args...), lines: make(chan string, 10_000), errs: &lockedBuffer{}}
	f.cmd.Stderr = f.errs
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.cmd.Process.Kill() })
	go func() {
		defer close(f.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			f.lines <- in.Text()
		}
	}()
	return f
}

// next is the next line, "" at the end.
func (f *following) next(t testing.TB) string {
	t.Helper()
	select {
	case line := <-f.lines:
		return line
	case <-time.After(patience):
		_ = f.cmd.Process.Signal(syscall.SIGQUIT) // where it is
		time.Sleep(time.Second)
		t.Fatalf("nothing came: %s", f.errs)
		return ""
	}
}

const small = `mesh: home
provisions: {postgres-database: {scope: node}}
nodes: [alpha, beta]
providers:
  pg-alpha: {provision: postgres-database, node: alpha, endpoint: "alpha:5432"}
modules: {wiki: {requires: {db: postgres-database}}}
assignments: {wiki: {node: alpha}}
`

// smallStore is a store with one consumer, whose credential is asked for at
// sequence 8.
func smallStore(t *testing.T) *cli {
	c := newCLI(t)
	c.must(t, "apply", "--init", "-f", write(t, filepath.Join(filepath.Dir(c.store), "small.yaml"), small))
	return c
}

// Every command on a served store goes through who serves it, many at once;
// what waits sees what others write; an orderly stop leaves nothing behind.
func TestServe(t *testing.T) {
	t.Parallel()
	c := smallStore(t)
	c.refused(t, "needs_serve", 7, "log", "--follow")
	s := c.serve(t)
	if e := c.refused(t, "store_locked", 7, "serve"); !strings.Contains(e.Why, "serve") {
		t.Errorf("%+v", e)
	}
	log := c.following(t, "log", "--follow", "--from", "seq:9", "-o", "jsonl")
	wait := c.following(t, "binding", "wait", "wiki/db")

	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { c.must(t, "node", "register", fmt.Sprintf("n-%d", i)) })
	}
	wg.Wait()
	for want := uint64(9); want <= 28; want++ {
		var item struct{ Seq uint64 }
		if line := log.next(t); json.Unmarshal([]byte(line), &item) != nil || item.Seq != want {
			t.Fatalf("line %q, want that of sequence %d", line, want)
		}
	}
	c.must(t, "credential", "issued", "wiki/db", "--generation", "8", "--secret-ref", "file:/s")
	c.must(t, "binding", "applied", "wiki/db", "--at", "29")
	if line := wait.next(t); !strings.Contains(line, "wiki/db") {
		t.Errorf("binding wait says %q", line)
	}
	s.stop(t, syscall.SIGTERM)
	if _, err := os.Stat(filepath.Join(c.store, "serve.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("how it is reached is still said: %v", err)
	}
	if n := c.seq(t); n != 30 {
		t.Errorf("the ledger is at %d", n)
	}

	// One that serves anew is found by what has waited through it all.
	s = c.serve(t)
	for log.next(t) == "" {
		t.Fatal("it follows no more")
	}
	c.must(t, "node", "register", "later")
	var item struct{ Seq uint64 }
	for item.Seq != 31 {
		line := log.next(t)
		if err := json.Unmarshal([]byte(line), &item); err != nil || item.Seq > 31 {
			t.Fatalf("line %q", line)
		}
	}
	s.stop(t, syscall.SIGTERM)
}

// Kind: an ordered stop that looks like a failure. Told to stop at any moment of its
// start, it ends with 0.
func TestServeStopsWhileItStarts(t *testing.T) {
	t.Parallel()
	c := smallStore(t)
	for i, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGTERM} {
		var errs lockedBuffer
		cmd := c.command(context.Background(), "serve")
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has begun", func() bool { return ledger.ReadHolder(c.store).PID == cmd.Process.Pid })
		time.Sleep(time.Duration(i*15) * time.Millisecond) // where it is then is no matter
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s after %d ms: %v\n%s", sig, i*15, err, &errs)
		}
	}
}

// A serving process that is killed, or told to stop, under writers: whatever was
// acknowledged is there, nothing is there by halves, and nobody hangs.
func TestServeStopsUnderWriters(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			c := smallStore(t)
			s := c.serve(t)
			var mu sync.Mutex
			acked := map[string]bool{}
			var wg sync.WaitGroup
			stop := make(chan struct{})
			for w := range 4 {
				wg.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						name := fmt.Sprintf("n-%d-%d", w, i)
						r := c.run(t, "node", "register", name, "--timeout", "10s")
						switch r.code {
						case 0:
							mu.Lock()
							acked[name] = true
							mu.Unlock()
						case 7, 8: // nobody there, or the outcome is not known
						default:
							t.Errorf("%s: exit %d\n%s", r, r.code, r.stderr)
						}
						if r.took > patience {
							t.Errorf("%s took %s", r, r.took)
						}
					}
				})
			}
			eventually(t, "some are written", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) > 10 })
			s.stop(t, sig)
			eventually(t, "more are written", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) > 20 })
			close(stop)
			wg.Wait()
			there := map[string]bool{}
			for _, n := range read[listJSON[struct{ Name string }]](t, c, "node", "list").Items {
				there[n.Name] = true
			}
			for name := range acked {
				if !there[name] {
					t.Errorf("%s was acknowledged and is lost", name)
				}
			}
		})
	}
}

// Who cannot read the store's files cannot connect, and who can reaches the
// ledger through requests alone.
func TestServeKeepsOthersOut(t *testing.T) {
	t.Parallel()
	c := smallStore(t)
	c.serve(t)
	path := filepath.Join(c.store, "serve.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var e struct{ URL, Seed string }
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	other, err := ledger.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]nats.Option{nil, {other.Option()}, {nats.UserInfo("bindery", "bindery")}, {nats.Token("x")}} {
		if nc, err := nats.Connect(e.URL, opts...); err == nil {
			nc.Close()
			t.Errorf("connected with %v", opts)
		}
	}
	key, err := ledger.ParseKey([]byte(e.Seed))
	if err != nil {
		t.Fatal(err)
	}
	denied := make(chan error, 100)
	nc, err := nats.Connect(e.URL, key.Option(), nats.CustomInboxPrefix("_INBOX."+key.Public),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	before := c.seq(t)
	id := read[bindingJSON](t, c, "binding", "show", "wiki/db").ID
	for _, subject := range []string{"bindery.home.binding." + id + ".applied", "$JS.API.STREAM.DELETE.bindery-home",
		"$JS.API.STREAM.PURGE.bindery-home", "$JS.API.STREAM.UPDATE.bindery-home", "$JS.API.DIRECT.GET.bindery-home",
		"$KV.bindery-home-bindings.x.y", "$JS.API.STREAM.DELETE.KV_bindery-home-bindings", "$SYS.REQ.SERVER.PING", "_INBOX." + other.Public + ".x"} {
		if err := nc.PublishRequest(subject, "bindery-req.home.command", []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-denied:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", subject, err)
			}
		case <-time.After(patience):
			t.Errorf("publishing to %s was not refused", subject)
		}
	}
	for _, subject := range []string{">", "bindery.>", "_INBOX.>", "_INBOX." + other.Public + ".>", "bindery-req.>", "$SYS.>"} {
		sub, err := nc.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-denied:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", subject, err)
			}
		case <-time.After(patience):
			t.Errorf("listening on %s was not refused", subject)
		}
		_ = sub.Unsubscribe()
	}
	// An answer that is to go elsewhere goes nowhere.
	for _, reply := range []string{"bindery.home.node." + id + ".registered", "$JS.API.STREAM.DELETE.bindery-home", "bindery-req.home.command"} {
		if err := nc.PublishRequest("bindery-req.home.query", reply, []byte(`{"query":"node.list"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if now := c.seq(t); now != before {
		t.Errorf("the ledger went from %d to %d", before, now)
	}
}
