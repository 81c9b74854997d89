package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Kind: killed with -9 in the middle of 200 commands: something acknowledged is
// gone, or is there by halves, or twice; or the record cannot be read any more.
func TestKilled(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	dir := filepath.Join(t.TempDir(), "store")
	rnd := rand.New(rand.NewPCG(1, 2))
	k := &killed{acked: map[events.ID]ack{}}
	for round := range rounds {
		// From before the server is up to the middle of the commands: so long
		// after the start, or so many acknowledgements and so long after those.
		acks := rnd.IntN(2 * crashCallers)
		if round%5 == 0 {
			acks = 0
		}
		k.round(t, dir, round, acks, time.Duration(rnd.IntN(100))*time.Millisecond)
		k.check(t, dir)
	}
	t.Logf("%d commands acknowledged, %d events", len(k.acked), k.events)
}

// killed is what all rounds have seen.
type killed struct {
	acked  map[events.ID]ack
	events int
}

// ack is what a process said of a command that was acknowledged.
type ack struct {
	seq uint64
	n   int
}

// round runs the commands in a process of its own and kills it, some time after
// so many commands of its were acknowledged.
func (k *killed) round(t *testing.T, dir string, round, acks int, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := child(ctx, "commands", dir, fmt.Sprint(round))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() { _ = cmd.Process.Kill() }
	var timer *time.Timer
	if acks == 0 {
		timer = time.AfterFunc(after, kill)
	}
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // what has no line end was not said to its end
		}
		if err != nil {
			t.Fatal(err)
		}
		var text string
		var a ack
		if _, err := fmt.Sscan(line, &text, &a.seq, &a.n); err != nil {
			t.Fatalf("round %d: the process said %q", round, line)
		}
		id, err := events.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		k.acked[id] = a
		if acks--; acks == 0 {
			timer = time.AfterFunc(after, kill)
		}
	}
	if timer != nil {
		timer.Stop()
	}
	_ = cmd.Wait()
	if ctx.Err() != nil || cmd.ProcessState.Exited() {
		t.Fatalf("round %d: the process ended by itself: %s", round, cmd.ProcessState)
	}
}

// check opens the store again, as the next process would.
func (k *killed) check(t *testing.T, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := openNode(ctx, dir) // its handler folds the log
	if err != nil {
		t.Fatalf("opening again: %v", err)
	}
	defer n.close()
	last, err := n.log.Last(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wrote := k.commands(ctx, t, n, last)
	for id, a := range k.acked {
		if w := wrote[id]; w != a {
			t.Fatalf("command %s was acknowledged with %+v, in the log it is %+v", id, a, w)
		}
	}
	if f := n.log.Foreign(); f.Count > 0 {
		t.Errorf("foreign messages: %+v", f)
	}
	k.names(t, n)
}

// commands reads the messages as they are stored, and checks that each command
// is whole and there once.
func (k *killed) commands(ctx context.Context, t *testing.T, n *node, last uint64) map[events.ID]ack {
	wrote := map[events.ID]ack{}
	if last == 0 {
		return wrote
	}
	var open events.ID // the command that is not whole yet
	seq, want := uint64(0), 1
	for msg := range messages(ctx, t, n, last) {
		seq++
		id, err := events.ParseID(msg.Get(events.HeaderCommand))
		if err != nil {
			t.Fatalf("sequence %d: %v", seq, err)
		}
		var i, of int
		if _, err := fmt.Sscanf(msg.Get(events.HeaderBatch), "%d/%d", &i, &of); err != nil {
			t.Fatalf("sequence %d: %v", seq, err)
		}
		if i != want || i > 1 && id != open {
			t.Fatalf("sequence %d is %d of %d of command %s; %d of %s was due", seq, i, of, id, want, open)
		}
		if _, twice := wrote[id]; i == 1 && twice {
			t.Fatalf("command %s is in the log twice", id)
		}
		open, want = id, i+1
		if i == of {
			want = 1
			wrote[id] = ack{seq, of}
		}
	}
	if seq != last || want != 1 {
		t.Fatalf("the log ends at %d of %d, in the middle of a command: %v", seq, last, want != 1)
	}
	k.events = int(last)
	return wrote
}

// names checks that no two live things of a kind bear one name, in the state as
// it is folded.
func (k *killed) names(t *testing.T, n *node) {
	s := projections.New()
	last, err := n.log.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for group, err := range n.log.Read(t.Context(), ledger.Position{}, last) {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ApplyCommand(group); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	one := func(kind, name string) {
		if seen[kind+name] {
			t.Fatalf("%s %s is there twice", kind, name)
		}
		seen[kind+name] = true
	}
	for _, v := range s.ListNodes().Items {
		one("node ", v.Name)
	}
	for _, v := range s.ListProviders().Items {
		one("provider ", v.Name)
	}
	for _, v := range s.ListAssignments().Items {
		one("assignment ", v.Name)
		for _, b := range v.Bindings {
			if b.Provider == "" {
				t.Fatalf("%s/%s was created without what serves it", v.Name, b.Slot)
			}
		}
	}
}

// messages yields the headers of all stored messages, past everything that the
// ledger package checks.
func messages(ctx context.Context, t *testing.T, n *node, last uint64) func(func(nats.Header) bool) {
	return func(yield func(nats.Header) bool) {
		js, err := n.nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		sub, err := js.SubscribeSync("bindery.>", nats.OrderedConsumer(), nats.BindStream(n.log.Stream()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		for {
			m, err := sub.NextMsgWithContext(ctx)
			if err != nil {
				t.Fatal(err)
			}
			meta, err := m.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			if !yield(m.Header) || meta.Sequence.Stream == last {
				return
			}
		}
	}
}
