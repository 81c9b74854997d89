package instance

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// cluster is three servers on this machine that can be stopped and started: in
// this process, or each a process that can be killed.
type cluster struct {
	t       *testing.T
	specs   []serverSpec
	servers []*server.Server // in this process; nil while stopped
	procs   []*child         // or processes
	urls    []string
}

const servers = 3

func startCluster(t *testing.T, processes bool) *cluster {
	t.Helper()
	// Each must know all routes from the beginning, and keep its ports.
	ports := freePorts(t, 2*servers)
	var routes []string
	for i := range servers {
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", ports[i]))
	}
	c := &cluster{t: t, servers: make([]*server.Server, servers)}
	if processes {
		c.procs = make([]*child, servers)
	}
	for i := range servers {
		c.urls = append(c.urls, fmt.Sprintf("nats://127.0.0.1:%d", ports[servers+i]))
		c.specs = append(c.specs, serverSpec{Name: fmt.Sprintf("s%d", i), Dir: t.TempDir(), Port: ports[servers+i], Route: ports[i], Routes: routes})
	}
	t.Cleanup(func() {
		for i := range c.specs {
			c.stop(i)
		}
	})
	for i := range c.specs {
		c.start(i)
	}
	c.await()
	return c
}

func freePorts(t *testing.T, n int) (out []int) {
	t.Helper()
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		out = append(out, ln.Addr().(*net.TCPAddr).Port)
	}
	return out
}

func (c *cluster) start(i int) {
	c.t.Helper()
	if c.procs != nil {
		spec, err := json.Marshal(c.specs[i])
		if err != nil {
			c.t.Fatal(err)
		}
		c.procs[i] = spawn(c.t, "server", string(spec))
		eventually(c.t, "a server starts", func() bool { return c.procs[i].said() == "ready" })
		return
	}
	s, err := c.specs[i].start()
	if err != nil {
		c.t.Fatal(err)
	}
	c.servers[i] = s
}

// stop ends a server: a process is killed.
func (c *cluster) stop(i int) {
	if c.procs != nil {
		_ = c.procs[i].cmd.Process.Kill()
		return
	}
	if s := c.servers[i]; s != nil {
		c.servers[i] = nil
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// await waits until all servers are there and up to date.
func (c *cluster) await() {
	c.t.Helper()
	if c.procs != nil {
		return // found tries until it can
	}
	eventually(c.t, "the cluster comes up", func() bool {
		leads := false
		for _, s := range c.servers {
			if !s.JetStreamIsCurrent() {
				return false
			}
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(c.servers) {
				leads = true
			}
		}
		return leads
	})
}

// patience is how long a test waits for what will come; it says only that something
// hangs, since a machine may be slow and busy.
const patience = 3 * time.Minute

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); {
		if time.Now().After(end) {
			t.Fatalf("it takes more than %v until %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// connect makes a connection that prefers server i and knows all of them.
func (c *cluster) connect(i int) *nats.Conn {
	c.t.Helper()
	urls := slices.Concat(c.urls[i:], c.urls[:i])
	return dial(c.t, strings.Join(urls, ","))
}

func dial(t *testing.T, urls string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(urls, append([]nats.Option{nats.DontRandomize(), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectJitter(20*time.Millisecond, 20*time.Millisecond), nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// leader is which server leads a stream; -1: none, or nobody says.
func (c *cluster) leader(nc *nats.Conn, stream string) int {
	m, err := nc.Request("$JS.API.STREAM.INFO."+stream, nil, time.Second)
	if err != nil {
		return -1
	}
	var info struct {
		Cluster struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	if json.Unmarshal(m.Data, &info) != nil {
		return -1
	}
	return slices.IndexFunc(c.specs, func(s serverSpec) bool { return s.Name == info.Cluster.Leader })
}

// proxy carries connections to one server, until it is cut.
type proxy struct {
	ln     net.Listener
	target string

	mu    sync.Mutex
	conns []net.Conn
	isCut bool
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: strings.TrimPrefix(target, "nats://")}
	t.Cleanup(func() { ln.Close(); p.cut() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go p.carry(c)
		}
	}()
	return p
}

func (p *proxy) url() string { return "nats://" + p.ln.Addr().String() }

func (p *proxy) carry(c net.Conn) {
	d, err := net.Dial("tcp", p.target)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, c, d)
	isCut := p.isCut
	p.mu.Unlock()
	if isCut {
		c.Close()
		d.Close()
		return
	}
	go func() { _, _ = io.Copy(c, d); c.Close() }()
	_, _ = io.Copy(d, c)
	d.Close()
}

// cut closes what is carried and carries nothing, until mend.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}
