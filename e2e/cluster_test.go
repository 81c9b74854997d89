package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var aboutHTTP = regexp.MustCompile(`http=(http://[0-9.:]+)`)

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The same on a cluster of three, with one node killed: one writer of three
// processes, others take over, nothing acknowledged is lost.
func TestServeCluster(t *testing.T) {
	t.Parallel()
	keys := newKeyring(t, "writer", "answers", "ann", "on-alpha", "on-beta")
	servers := natsServers(t, 3, keys.permissions("ann", "on-alpha", "on-beta"))
	keys.prime(t, servers)
	urls := urls(servers)
	all := strings.Join(urls, ",")
	dir := t.TempDir()
	as := func(name string) *cli { return keys.on(all, name) }
	key := func(name string) string { return keys.public[name] }
	admin := as("writer")
	admin.refused(t, "usage", 2, "init", "--mesh", "home")
	ann := key("ann")
	eventually(t, "a ledger", func() bool {
		return admin.run(t, "init", "--mesh", "home", "--replicas", "3", "--operator", "ann", "--nkey", ann).code == 0
	})
	admin.refused(t, "ledger_exists", 4, "init", "--mesh", "home", "--replicas", "3", "--operator", "ann", "--nkey", ann)

	// Three processes, each nearest to a server of its own.
	instances := map[string]*serving{}
	for i, u := range urls {
		o := keys.on(u+","+all, "writer")
		instances[fmt.Sprintf("i%d", i)] = o.serve(t, "--answer-creds", keys.file("answers"), "--http", "127.0.0.1:0")
	}
	as("ann").must(t, "apply", "-f", write(t, filepath.Join(dir, "small.yaml"), small))
	as("ann").must(t, "access", "grant", "on-alpha", "--role", "agent", "--node", "alpha", "--nkey", key("on-alpha"))
	as("ann").must(t, "access", "grant", "on-beta", "--role", "agent", "--node", "beta", "--nkey", key("on-beta"))
	ask := keeper{as("ann"), t}.ask("wiki/db")
	as("on-beta").refused(t, "not_permitted", 4, "credential", "issued", "wiki/db", "--generation", number(ask), "--secret-ref", "file:/s")
	as("on-alpha").must(t, "credential", "issued", "wiki/db", "--generation", number(ask), "--secret-ref", "file:/s")

	writer := func() string {
		for name, s := range instances {
			if log := s.errs.String(); strings.LastIndex(log, "role=writer") > strings.LastIndex(log, "role=follower") {
				return name
			}
		}
		return ""
	}
	eventually(t, "a writer", func() bool { return writer() != "" })
	eventually(t, "one that says it writes, and three that are ready", func() bool {
		writers, ready := 0, 0
		for _, s := range instances {
			m := aboutHTTP.FindStringSubmatch(s.errs.String())
			if m == nil {
				return false
			}
			if strings.Contains(get(t, m[1]+"/metrics"), "\nbindery_writer 1") {
				writers++
			}
			if get(t, m[1]+"/readyz") == "ready\n" {
				ready++
			}
		}
		return writers == 1 && ready == 3
	})
	if n := read[struct {
		Seq uint64 `json:"seq"`
	}](t, as("ann"), "status", "--at-least", number(ask)).Seq; n < ask {
		t.Errorf("a follower answered at %d, asked for %d", n, ask)
	}

	// Callers write throughout, while the writer is killed and then a server.
	var mu sync.Mutex
	acked := map[string]bool{}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(acked) }
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("n-%d-%d", w, i)
				if r := as("ann").run(t, "node", "register", name, "--timeout", "40s"); r.code == 0 {
					mu.Lock()
					acked[name] = true
					mu.Unlock()
				} else if r.code != 7 && r.code != 8 {
					t.Errorf("%s: exit %d\n%s", r, r.code, r.stderr)
				}
			}
		})
	}
	more := func(what string) {
		t.Helper()
		n, began := count(), time.Now()
		eventually(t, what, func() bool { return count() > n+5 })
		t.Logf("%s: %s", what, time.Since(began))
	}
	more("at first")
	gone := writer()
	instances[gone].stop(t, syscall.SIGKILL)
	delete(instances, gone)
	more("after the writer was killed")
	eventually(t, "another writer", func() bool { return writer() != "" })
	servers[1].Shutdown()
	servers[1].WaitForShutdown()
	more("after a server was killed")
	close(stop)
	wg.Wait()

	there := map[string]bool{}
	for _, n := range read[listJSON[struct{ Name string }]](t, as("ann"), "node", "list").Items {
		there[n.Name] = true
	}
	for name := range acked {
		if !there[name] {
			t.Errorf("%s was acknowledged and is lost", name)
		}
	}
	for _, s := range instances {
		s.stop(t, syscall.SIGTERM)
	}
}
