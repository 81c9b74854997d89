package ledger

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// connectGuest starts a server with two guests, and connects the first as often as is said.
func connectGuest(t *testing.T, n int) (nc []*nats.Conn, closed chan struct{}, other *nats.Conn) {
	t.Helper()
	e, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: t.TempDir(), Listen: true, Host: "127.0.0.1", Port: -1, Users: []User{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	closed = make(chan struct{}, n+1)
	connect := func(key Key) *nats.Conn {
		nc, err := nats.Connect(e.URL(), key.Option(), nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { closed <- struct{}{} }),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	var keys []Key
	var guests []Guest
	for range 2 {
		key, err := NewKey()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
		guests = append(guests, Guest{Key: key.Public, Hears: "in." + key.Public + ".>", Sends: []Crossing{{From: "out.>", To: "out." + key.Public + ".>"}}})
	}
	if err := e.SetGuests(guests); err != nil {
		t.Fatal(err)
	}
	for range n {
		nc = append(nc, connect(keys[0]))
	}
	return nc, closed, connect(keys[1])
}

// A guest has no more subscriptions on all of its connections than it may: with more,
// all of them are closed, and nobody else's.
func TestGuestWithManySubscriptions(t *testing.T) {
	t.Parallel()
	const n = 8
	conns, closed, other := connectGuest(t, n)
	subject := "in." + other.Opts.Nkey + ".x"
	for _, nc := range conns {
		for range GuestSubscriptions {
			if _, err := nc.SubscribeSync("in." + nc.Opts.Nkey + ".x"); err != nil {
				break // it is closed already
			}
		}
		_ = nc.Flush()
	}
	for range n {
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Fatal("a connection stays open")
		}
	}
	if _, err := other.SubscribeSync(subject); err != nil || other.Flush() != nil {
		t.Errorf("another guest's connection: %v, %v", err, other.LastError())
	}
}

// What somebody causes the server to complain of does not fill the log; how much was
// not said is.
func TestComplaintsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := newServerLog(slog.New(slog.NewTextHandler(&out, nil)))
	for range 10_000 {
		l.Errorf("a violation")
	}
	if n := strings.Count(out.String(), "\n"); n < complaintBurst || n > 2*complaintBurst {
		t.Errorf("%d lines", n)
	}
	l.lines.SetBurst(20_000)
	l.lines.SetLimit(1e9)
	time.Sleep(time.Millisecond)
	l.Warnf("one more")
	if last := out.String()[strings.LastIndex(strings.TrimSpace(out.String()), "\n")+1:]; !strings.Contains(last, "unsaid=") {
		t.Errorf("the last line is %q", last)
	}
}
