package instance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// childEnv makes the test binary one of the children below instead of running
// tests: what is stopped or killed is a process.
const childEnv = "BINDERY_INSTANCE_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(m.Run())
	case "instance":
		childInstance(os.Args[1], os.Args[2])
	case "server":
		childServer(os.Args[1])
	}
}

// child is a process of this test binary. It ends when its standard input does.
type child struct {
	cmd *exec.Cmd

	mu   sync.Mutex
	last string // line it has printed
}

func spawn(t *testing.T, what string, args ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], args...)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+what)
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			c.mu.Lock()
			c.last = lines.Text()
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		timer := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
		defer timer.Stop()
		<-ended
		_ = c.cmd.Wait() // one that was killed does not end well
	})
	return c
}

// said is the last line a child has printed.
func (c *child) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func untilStdinEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

func die(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// childInstance is an instance that says which role it has.
func childInstance(urls, name string) {
	dial := func() (*nats.Conn, error) {
		return nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	}
	nc, err := dial()
	die(err)
	i := New(Config{Conn: nc, Dial: dial, Mesh: testMesh, Name: name, Version: "0.0.0"})
	ctx := untilStdinEnds()
	go func() {
		for last := Role(""); ; time.Sleep(10 * time.Millisecond) {
			if r := i.Status().Role; r != last {
				fmt.Println(r)
				last = r
			}
		}
	}()
	die(i.Run(ctx))
}

// serverSpec is what a server of a cluster needs to know.
type serverSpec struct {
	Name, Dir   string
	Port, Route int
	Routes      []string
}

func (s serverSpec) options() *server.Options {
	o := &server.Options{
		ServerName: s.Name, Host: "127.0.0.1", Port: s.Port, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: s.Dir, SyncAlways: true, JetStreamMaxStore: 1 << 40, JetStreamMaxMemory: 1 << 30,
	}
	if len(s.Routes) > 0 {
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: s.Route}
		o.Routes = server.RoutesFromStr(strings.Join(s.Routes, ","))
	}
	return o
}

func (s serverSpec) start() (*server.Server, error) {
	srv, err := server.NewServer(s.options())
	if err != nil {
		return nil, err
	}
	srv.Start()
	if !srv.ReadyForConnections(patience) {
		return nil, fmt.Errorf("server %s does not start", s.Name)
	}
	return srv, nil
}

func childServer(spec string) {
	var s serverSpec
	die(json.Unmarshal([]byte(spec), &s))
	srv, err := s.start()
	die(err)
	fmt.Println("ready")
	<-untilStdinEnds().Done()
	srv.Shutdown()
}
