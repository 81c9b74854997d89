package instance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/service"
)

// startServer starts one server, without others.
func startServer(t *testing.T) (url string) {
	t.Helper()
	s, err := serverSpec{Name: "alone", Dir: t.TempDir(), Port: -1}.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s.ClientURL()
}

// Kind: a writer that was stopped for longer than its lease and does not know it
// (SIGSTOP, SIGCONT). What it stores late is fenced, and what it would answer from
// the past it does not answer.
func TestStoppedWriter(t *testing.T) {
	if testing.Short() {
		t.Skip("a lease has to run out")
	}
	t.Parallel()
	url := startServer(t)
	nc := dial(t, url)
	log := found(t, nc, 1)
	a := spawn(t, "instance", url, "a")
	eventually(t, "there is a writer", func() bool { return a.said() == string(Writer) })
	b := spawn(t, "instance", url, "b")
	eventually(t, "there is a follower", func() bool { return b.said() == string(Follower) })
	c := newClient(t, nc)
	prepare(t, c)

	stopped := time.Now()
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.cmd.Process.Signal(syscall.SIGCONT) })
	eventually(t, "it stands still", func() bool { return standsStill(t, a.cmd.Process.Pid) })
	// These wait in its sockets: nobody else hears them.
	answers := map[string]*nats.Subscription{
		"a write":             askRaw(t, nc, service.CommandSubject(testMesh), command(t, commands.RegisterNode{Name: "late"}, false)),
		"a refusal":           askRaw(t, nc, service.CommandSubject(testMesh), command(t, commands.RenameNode{Node: "soon", To: "then"}, false)),
		"a dry run":           askRaw(t, nc, service.CommandSubject(testMesh), command(t, commands.RegisterNode{Name: "soon"}, true)),
		"a read":              askRaw(t, nc, service.QuerySubject(testMesh), query(t, commands.ListNodes{})),
		"a read's refusal":    askRaw(t, nc, service.QuerySubject(testMesh), query(t, commands.ShowNode{Node: "soon"})),
		"a write in one more": askRaw(t, nc, service.CommandSubject(testMesh), command(t, commands.RegisterNode{Name: "later"}, false)),
	}
	eventually(t, "another is the writer", func() bool { return b.said() == string(Writer) })
	t.Logf("stopped: the next writer after %v", since(stopped))
	if _, err := c.Do(patiently(t), request(commands.RegisterNode{Name: "soon"})); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for what, sub := range answers {
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var got struct {
			Error *commands.Refusal `json:"error"`
		}
		if err := json.Unmarshal(m.Data, &got); err != nil || got.Error == nil ||
			got.Error.Code != commands.Unreachable && got.Error.Code != commands.OutcomeUnknown {
			t.Errorf("%s was answered from the past: %s", what, m.Data)
		}
	}
	eventually(t, "it follows", func() bool { return a.said() == string(Follower) })
	if _, err := c.Do(patiently(t), request(commands.RegisterNode{Name: "last"})); err != nil {
		t.Fatal(err)
	}
	st := verify(t, log, nil, nil)
	names := map[string]bool{}
	for _, n := range st.ListNodes().Items {
		names[n.Name] = true
	}
	if !names["soon"] || !names["last"] || names["late"] || names["later"] {
		t.Errorf("nodes: %v", names)
	}
}

// standsStill reports whether no thread of a process runs (proc(5), state T): a
// signal is sent before it has its effect.
func standsStill(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d: %v, %v", pid, files, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return false // the thread has ended
		}
		if _, rest, _ := strings.Cut(string(data), ") "); !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true
}

func askRaw(t *testing.T, nc *nats.Conn, subject string, body any) *nats.Subscription {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest(subject, inbox, data); err != nil {
		t.Fatal(err)
	}
	return sub
}

func command(t *testing.T, c commands.Command, dry bool) service.CommandMessage {
	t.Helper()
	args, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return service.CommandMessage{Verb: c.Verb(), Args: args, ID: newID(), Actor: "ann", DryRun: dry}
}

func query(t *testing.T, q commands.Query) service.QueryMessage {
	t.Helper()
	args, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return service.QueryMessage{Query: q.Name(), Args: args}
}
