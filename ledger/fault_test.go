package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/events"
)

// faulty is a transport in which something goes wrong. It lies between Append
// and the real one; the stream behind is real.
type faulty struct {
	real  transport
	t     *testing.T
	nc    *nats.Conn
	mesh  string
	try   int
	fault fault
}

// A fault handles one exchange, or passes it on.
type fault func(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer

func (f *faulty) exchange(ctx context.Context, msgs []*nats.Msg, from int) []answer {
	f.try++
	return f.fault(f, ctx, msgs, from)
}

// send sends msgs[:n] for real, with nobody waiting beyond a moment.
func (f *faulty) send(ctx context.Context, msgs []*nats.Msg, from int) []answer {
	return f.real.exchange(ctx, msgs, from)
}

func lost(n int) []answer { return failing(n, errNoAnswer) }

func failing(n int, err error) []answer {
	out := make([]answer, n)
	for i := range out {
		out[i].err = err
	}
	return out
}

func api(code jetstream.ErrorCode) error {
	return &jetstream.APIError{Code: 400, ErrorCode: code, Description: "injected"}
}

// once does fault at the first try; the later ones pass.
func once(f0 fault) fault { return times(1, f0) }

func times(n int, f0 fault) fault {
	return func(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer {
		if f.try <= n {
			return f0(f, ctx, msgs, from)
		}
		return f.send(ctx, msgs, from)
	}
}

// dropped: nothing reaches the server.
func dropped(err error) fault {
	return func(_ *faulty, _ context.Context, msgs []*nats.Msg, from int) []answer {
		return failing(len(msgs)-from, err)
	}
}

// stored: all is stored, but the answer is another.
func stored(err error) fault {
	return func(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer {
		f.send(ctx, msgs, from)
		return failing(len(msgs)-from, err)
	}
}

// front: only the front part, k messages, reaches the server, and no answer
// comes back from the j-th on.
func front(k, j int) fault {
	return func(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer {
		k := min(k, len(msgs))
		out := lost(len(msgs) - from)
		if from == 0 {
			copy(out, f.send(ctx, msgs[:k], 0)[:min(j, k)])
			return out
		}
		if k == len(msgs) {
			k--
		}
		for _, m := range msgs[:k] { // a batch without its end
			m.Reply = ""
			if err := f.nc.PublishMsg(m); err != nil {
				f.t.Error(err)
			}
		}
		f.nc.Flush()
		return out
	}
}

// late: all is stored, but only a while after the try has been given up.
func late(d time.Duration) fault {
	return func(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer {
		var copies []*nats.Msg
		for _, m := range msgs {
			h := nats.Header{}
			for k, v := range m.Header {
				h[k] = v
			}
			copies = append(copies, &nats.Msg{Subject: m.Subject, Header: h, Data: m.Data})
		}
		time.AfterFunc(d, func() {
			for _, m := range copies {
				f.nc.PublishMsg(m)
			}
		})
		return lost(len(msgs) - from)
	}
}

// intruder: somebody else publishes after the first k messages; skip of ours
// after that are lost.
func intruder(k, skip int) fault {
	return func(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer {
		if from > 0 {
			f.publishForeign()
			return f.send(ctx, msgs, from)
		}
		k := min(k, len(msgs)-1)
		out := lost(len(msgs))
		if k > 0 {
			copy(out, f.send(ctx, msgs[:k], 0))
		}
		f.publishForeign()
		if rest := k + skip; rest < len(msgs) {
			copy(out[rest:], f.send(ctx, msgs[rest:], 0))
		}
		return out
	}
}

func (f *faulty) publishForeign() {
	js, _ := jetstream.New(f.nc)
	m := nats.NewMsg(events.SubjectFor(f.mesh, events.Type{Entity: events.EntityNode, Name: "registered"}, newID()))
	m.Data = []byte("from somebody else")
	if _, err := js.PublishMsg(context.Background(), m); err != nil {
		f.t.Error(err)
	}
}

// kinds of groups Append treats differently; each is appended after two events.
var kinds = []struct {
	name  string
	sizes []int
	dear  bool // make batches look dear, so that singles are pipelined
}{
	{"one event", []int{1}, true},
	{"pipelined", []int{1, 1, 1, 1, 1}, true},
	{"batch of singles", []int{1, 1, 1, 1, 1}, false},
	{"batch of one command", []int{3}, true},
	{"batch of mixed", []int{1, 3, 1, 2}, true},
}

// outcome is what Append must report.
type outcome int

const (
	all       outcome = iota // everything stored, no error
	conflicts                // ConflictError
	partly                   // as all where a batch, else ConflictError with some stored
	refusing                 // StoreError, nothing stored
	large                    // TooLargeError, nothing stored
	open                     // UnknownError
	expired                  // ctx's error: surely not stored
)

// Each kind of group meets each fault, and what is reported equals what lies in
// the stream. After an error the same is appended again, as a caller would.
func TestAppendFaults(t *testing.T) {
	faults := []struct {
		name  string
		fault fault
		want  outcome
	}{
		{"none", times(0, nil), all},
		{"dropped", once(dropped(errNoAnswer)), all},
		{"dropped five times", times(5, dropped(errNoAnswer)), all},
		{"no responders", once(dropped(nats.ErrNoResponders)), all},
		{"connection closed while sending", once(dropped(nats.ErrConnectionClosed)), all},
		{"answer lost", once(stored(errNoAnswer)), all},
		{"answer unreadable", once(stored(errors.New("garbage"))), all},
		{"first sent only, no answer", once(front(1, 0)), all},
		{"three sent, one answer", once(front(3, 1)), all},
		{"three sent, three answers", once(front(3, 3)), all},
		{"all sent, two answers", once(front(99, 2)), all},
		{"stored late", once(late(3 * time.Millisecond)), all},
		{"conflict though stored", once(stored(api(10071))), all},
		{"conflict without number though stored", once(stored(api(10164))), all},
		{"conflict without a cause", once(dropped(api(10164))), all},
		{"conflict after a lost answer", conflictAfterLost, all},
		{"incomplete batch", once(dropped(api(10176))), all},
		{"incomplete batch though stored", once(stored(api(10176))), all},
		{"duplicate though stored", once(stored(api(10201))), all},
		{"too many batches", times(3, dropped(api(10210))), all},
		{"store failed", once(dropped(api(10077))), all},
		{"refusal after a lost answer, stored", refusedAfter(stored(errNoAnswer)), all},
		{"intruder before", once(intruder(0, 0)), conflicts},
		{"intruder within", once(intruder(2, 0)), partly},
		{"intruder in the place of one of ours", once(intruder(2, 1)), partly},
		{"intruder before, answer lost", once(intruderUnseen), conflicts},
		{"out of resources", times(1000, dropped(api(10023))), refusing},
		{"sealed", times(1000, dropped(api(10109))), refusing},
		{"batch too large", times(1000, dropped(api(10199))), large},
		{"message too large", times(1000, dropped(nats.ErrMaxPayload)), large},
		{"dropped for ever", times(1000, dropped(errNoAnswer)), open},
		{"front part dropped for ever", frontThenNothing, open},
		{"refused after a lost try, for ever", refusedForEver, open},
		{"busy for ever", times(1000, dropped(api(10210))), expired},
	}
	s := startStore(t, t.TempDir())
	for _, kind := range kinds {
		for _, test := range faults {
			t.Run(kind.name+"/"+test.name, func(t *testing.T) {
				l := freshLog(t, s)
				l.tun = tuning{attempt: 300 * time.Millisecond, backoff: time.Millisecond, maxPause: 5 * time.Millisecond, watch: 50 * time.Millisecond, partial: 200 * time.Millisecond}
				if kind.dear {
					l.costs.batch = newLine(time.Hour, time.Hour)
				} else {
					l.costs.batch = newLine(0, 0)
				}
				w := newWriter()
				if _, err := l.Append(ctxT(t), 0, w.commands(2)); err != nil {
					t.Fatal(err)
				}
				f := &faulty{real: l.tr, t: t, nc: s.nc, mesh: testMesh, fault: test.fault}
				l.tr = f
				cmds := w.commands(kind.sizes...)
				ctx := ctxT(t)
				if test.want >= open {
					c, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
					defer cancel()
					ctx = c
				}
				n, err := l.Append(ctx, 2, cmds)
				checkOutcome(t, test.want, n, len(cmds), err)
				checkStored(t, l, cmds, n, err)

				// The same again, over a transport that works.
				l.tr = f.real
				again, err2 := l.Append(ctxT(t), 2, cmds)
				var c *ConflictError
				switch {
				case errors.As(err, &c):
					if again != n || !errors.As(err2, &c) {
						t.Errorf("again: %d, %v; the first time %d, %v", again, err2, n, err)
					}
				case again != len(cmds) || err2 != nil:
					t.Errorf("again: %d of %d, %v", again, len(cmds), err2)
				}
				checkStored(t, l, cmds, again, err2)
			})
		}
	}
}

func conflictAfterLost(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer {
	switch f.try {
	case 1:
		f.send(ctx, msgs, from)
		return lost(len(msgs) - from)
	case 2:
		return f.send(ctx, msgs, from) // a true conflict, with ourselves
	}
	f.t.Error("tried three times")
	return lost(len(msgs) - from)
}

func refusedAfter(first fault) fault {
	return func(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer {
		if f.try == 1 {
			return first(f, ctx, msgs, from)
		}
		return failing(len(msgs)-from, api(10023))
	}
}

func refusedForEver(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer {
	return refusedAfter(dropped(errNoAnswer))(f, ctx, msgs, from)
}

func frontThenNothing(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer {
	if f.try == 1 && len(msgs) > 1 {
		return front(1, 0)(f, ctx, msgs, from)
	}
	return lost(len(msgs) - from)
}

func intruderUnseen(f *faulty, ctx context.Context, msgs []*nats.Msg, from int) []answer {
	f.publishForeign()
	f.send(ctx, msgs, from)
	return lost(len(msgs) - from)
}

func checkOutcome(t *testing.T, want outcome, n, total int, err error) {
	t.Helper()
	var (
		conflict *ConflictError
		refused  *StoreError
		tooBig   *TooLargeError
		unknown  *UnknownError
	)
	ok := false
	switch want {
	case all:
		ok = err == nil && n == total
	case conflicts:
		ok = errors.As(err, &conflict) && n == 0 && conflict.Expected == 2 && conflict.Actual >= 3
	case partly:
		ok = errors.As(err, &conflict) && n < total
	case refusing:
		ok = errors.As(err, &refused) && n == 0
	case large:
		ok = errors.As(err, &tooBig) && n == 0
	case open:
		ok = errors.As(err, &unknown) && unknown.Stored == n && errors.Is(err, context.DeadlineExceeded)
	case expired:
		ok = errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &unknown) && n == 0
	}
	if !ok {
		t.Errorf("reported %d of %d and %v", n, total, err)
	}
}

// checkStored derives from the raw stream what is stored of cmds, and compares.
func checkStored(t *testing.T, l *Log, cmds []events.Group, n int, err error) {
	t.Helper()
	ctx := ctxT(t)
	last, e := l.Last(ctx)
	if e != nil {
		t.Fatal(e)
	}
	lying := map[string]uint64{}
	var foreign []string
	ours := map[string]bool{}
	for _, c := range chains(cmds) {
		ours[c] = true
	}
	recs, e := l.Get(ctx, 1, last)
	if e != nil {
		t.Fatal(e)
	}
	for i := range recs {
		c := recs[i].Get(events.HeaderChain)
		if _, twice := lying[c]; twice && ours[c] {
			t.Errorf("sequences %d and %d hold the same event", lying[c], recs[i].Seq)
		}
		lying[c] = recs[i].Seq
		if c == "" {
			foreign = append(foreign, fmt.Sprint(recs[i].Seq))
		}
	}
	whole := 0
	for i, cmd := range cmds {
		there := 0
		for j := range cmd {
			if lying[cmd[j].Get(events.HeaderChain)] == cmd[j].Seq {
				there++
			} else if at := lying[cmd[j].Get(events.HeaderChain)]; at != 0 {
				t.Errorf("event %d lies at %d", cmd[j].Seq, at)
			}
		}
		switch {
		case there != 0 && there != len(cmd):
			t.Errorf("command %d is there by halves: %d of %d", i, there, len(cmd))
		case there == len(cmd) && whole == i:
			whole++
		case there == len(cmd):
			t.Errorf("command %d is there and %d is not (foreign at %v)", i, whole, foreign)
		}
	}
	var unknown *UnknownError
	if errors.As(err, &unknown) {
		if whole < n {
			t.Errorf("%d commands are stored, at least %d were reported", whole, n)
		}
	} else if whole != n {
		t.Errorf("%d commands are stored, %d were reported (%v; foreign at %v)", whole, n, err, foreign)
	}
}

// freshLog is an empty ledger in a server that has had others.
func freshLog(t testing.TB, s *store) *Log {
	t.Helper()
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(ctxT(t), StreamName(testMesh)); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Fatal(err)
	}
	awaitGone(t, s)
	return mustCreate(t, s)
}

// awaitGone waits until the files of the deleted ledger are: the server removes
// them after it has answered, and a stream created meanwhile finds its messages.
// What it leaves behind (a flush may write while it removes) is removed here.
func awaitGone(t testing.TB, s *store) {
	t.Helper()
	dir := filepath.Join(s.srv.srv.JetStreamConfig().StoreDir, "$G", "streams", StreamName(testMesh))
	for range 50 {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}
