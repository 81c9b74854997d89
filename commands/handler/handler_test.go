package handler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bindery/commands"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// faulty is a real log whose appends go wrong as planned.
type faulty struct {
	*ledger.Log
	foreign func() // publishes a message that is no event
	plan    func() fault
}

type fault int

const (
	none          fault = iota
	conflict            // somebody else appended first; nothing of ours is stored
	unknownLost         // no answer, and nothing is stored
	unknownStored       // no answer, and it is stored
	prefix              // a front part is stored, then a conflict
	refusedByDisk       // the server takes nothing
	faults
)

func (f *faulty) Append(ctx context.Context, after uint64, cmds []events.Group) (int, error) {
	switch f.plan() {
	case conflict:
		f.foreign()
		return f.Log.Append(ctx, after, cmds)
	case unknownLost:
		return 0, &ledger.UnknownError{After: after, Err: context.DeadlineExceeded}
	case unknownStored:
		if _, err := f.Log.Append(ctx, after, cmds); err != nil {
			return 0, err
		}
		return 0, &ledger.UnknownError{After: after, Err: context.DeadlineExceeded}
	case prefix:
		front := cmds[:len(cmds)/2]
		if len(front) > 0 {
			if _, err := f.Log.Append(ctx, after, front); err != nil {
				return 0, err
			}
		}
		f.foreign()
		return len(front), &ledger.ConflictError{Expected: after + uint64(len(front)), Actual: after + uint64(len(front)) + 1}
	case refusedByDisk:
		return 0, &ledger.StoreError{Code: 10077, Err: errors.New("no space left on device")}
	}
	return f.Log.Append(ctx, after, cmds)
}

// Kind: an answer rests on an event that never was. Appends fail in every way,
// in the middle of groups; what was answered is in the log, and nothing else.
func TestFailedAppends(t *testing.T) {
	s := newStore(t)
	var on atomic.Bool
	rnd := rand.New(rand.NewPCG(1, 2))
	f := &faulty{Log: s.log, plan: func() fault {
		if !on.Load() || rnd.IntN(3) > 0 {
			return none
		}
		return fault(rnd.IntN(int(faults)))
	}}
	f.foreign = func() {
		if _, err := s.nc.Request("bindery.home.stray", []byte("no event"), time.Second); err != nil {
			t.Error(err)
		}
	}
	h := open(t, Config{Log: f, AppendTimeout: 2 * time.Second})
	on.Store(true)

	const callers, each = 16, 60
	var taken, done atomic.Int64
	acked := sync.Map{} // command id → sequence
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				// Two callers race for each name.
				req := request(commands.RegisterNode{Name: fmt.Sprintf("n-%d-%d", c/2, i)})
				for {
					r, err := h.Do(context.Background(), req)
					var refusal *commands.Refusal
					var store *ledger.StoreError
					switch {
					case err == nil:
						acked.Store(req.ID, r.Seq)
						done.Add(1)
					case errors.As(err, &refusal) && refusal.Code == commands.OutcomeUnknown, errors.As(err, &store):
						continue // the same id again
					case errors.As(err, &refusal) && refusal.Code == commands.NameTaken:
						// The refusal cites an id: it must be in the log.
						id := *refusal.Candidates[0].ID
						h.View(func(s *projections.State) {
							if s.ByID(events.EntityNode, id) == 0 {
								t.Errorf("%s was refused for node %s, which never was", req.ID, id)
							}
						})
						taken.Add(1)
					default:
						t.Errorf("unexpected: %v", err)
					}
					break
				}
			}
		})
	}
	wg.Wait()
	on.Store(false)
	if done.Load() != callers*each/2 || taken.Load() != callers*each/2 {
		t.Errorf("%d registered and %d refused, want half each of %d", done.Load(), taken.Load(), callers*each)
	}
	fresh, all := fold(t, s.log)
	wrote := map[events.ID]int{}
	for _, e := range all {
		wrote[e.Command]++
	}
	acked.Range(func(id, seq any) bool {
		if n := wrote[id.(events.ID)]; n != 1 {
			t.Errorf("command %s is in the log %d times", id, n)
		}
		return true
	})
	h.View(func(live *projections.State) {
		if !reflect.DeepEqual(live.ListNodes(), fresh.ListNodes()) || live.Chain != fresh.Chain {
			t.Error("the live state is not the fold of the log")
		}
	})
	if s.log.Foreign().Count == 0 {
		t.Error("no foreign message was skipped: the test did not test it")
	}
}

// Kind: two of one name. 50 parallel creates with different choices: one
// succeeds, 49 are refused, one binding exists.
func TestParallelCreate(t *testing.T) {
	s := newStore(t)
	h := open(t, Config{Log: s.log})
	seed(t, h)
	var won, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			bind := map[string]string{"db": []string{"pg-alpha", "pg-beta"}[i%2]}
			_, err := h.Do(context.Background(), request(commands.CreateAssignment{Module: "wiki", Node: "alpha", Bind: bind}))
			var r *commands.Refusal
			switch {
			case err == nil:
				won.Add(1)
			case errors.As(err, &r) && r.Code == commands.NameTaken && r.Code.Exit() == commands.ExitRefused:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || refused.Load() != 49 {
		t.Errorf("%d won, %d were refused", won.Load(), refused.Load())
	}
	h.View(func(s *projections.State) {
		if n := len(s.ListBindings(projections.BindingFilter{}).Items); n != 1 {
			t.Errorf("%d bindings", n)
		}
	})
}

func seed(t testing.TB, h *Handler) {
	t.Helper()
	must(t, h, commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"},
		commands.DefineProvision{Name: "pg", Scope: events.ScopeNode},
		commands.RegisterProvider{Name: "pg-alpha", Provision: "pg", Node: "alpha", Endpoint: "a:1"},
		commands.RegisterProvider{Name: "pg-beta", Provision: "pg", Node: "beta", Endpoint: "b:1"},
		commands.DeclareModule{Name: "wiki", Module: requires("db", "pg")})
}

// Kind: deduplication that is different from what was expected. The same id
// and content, at any time and after a restart: one effect and the same answer.
func TestCommandIDs(t *testing.T) {
	s := newStore(t)
	now := time.Now()
	clock := func() time.Time { return now }
	h := open(t, Config{Log: s.log, Clock: clock})
	req := request(commands.RegisterNode{Name: "alpha"})
	first, err := h.Do(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		again, err := h.Do(t.Context(), req)
		if err != nil || !again.Repeated || again.Seq != first.Seq || !reflect.DeepEqual(again.Events, first.Events) {
			t.Fatalf("again: %+v (%v), first %+v", again, err, first)
		}
		h.Close()
		h = open(t, Config{Log: s.log, Clock: clock})
	}
	code := func(req commands.Request) commands.Code {
		t.Helper()
		_, err := h.Do(t.Context(), req)
		var r *commands.Refusal
		if !errors.As(err, &r) {
			t.Fatalf("%v is no refusal", err)
		}
		return r.Code
	}
	other := req
	other.Command = commands.RegisterNode{Name: "beta"}
	if c := code(other); c != commands.CommandIDReused {
		t.Errorf("another content: %s", c)
	}
	ahead := request(commands.RegisterNode{Name: "beta"})
	now = now.Add(-11 * time.Minute) // the writer's clock is behind
	if c := code(ahead); c != commands.CommandIDExpired {
		t.Errorf("an id from the future: %s", c)
	}
}

// Kind: dry runs and expectations that decide otherwise than the command.
func TestDryRunAndExpectation(t *testing.T) {
	s := newStore(t)
	h := open(t, Config{Log: s.log})
	seed(t, h)
	var at uint64
	h.View(func(s *projections.State) { at = s.Seq })
	req := request(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	req.DryRun, req.ExpectSeq = true, &at
	dry, err := h.Do(t.Context(), req)
	if err != nil || !dry.DryRun || dry.Seq != at || len(dry.Events) != 2 {
		t.Fatalf("dry: %+v (%v)", dry, err)
	}
	req.DryRun = false
	real, err := h.Do(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for i := range real.Events {
		if real.Events[i].Type != dry.Events[i].Type || real.Events[i].Seq != dry.Events[i].Seq {
			t.Errorf("event %d: dry %+v, real %+v", i, dry.Events[i], real.Events[i])
		}
	}
	if len(real.Bindings) != 1 || real.Bindings[0].To != dry.Bindings[0].To {
		t.Errorf("bindings: dry %+v, real %+v", dry.Bindings, real.Bindings)
	}
	moved := request(commands.RegisterNode{Name: "gamma"})
	moved.ExpectSeq = &at
	var r *commands.Refusal
	if _, err := h.Do(t.Context(), moved); !errors.As(err, &r) || r.Code != commands.LedgerMoved {
		t.Errorf("expectation: %v", err)
	}
}

// Time never runs backwards by up to a minute of clock trouble; a larger step
// is a fact of its own and time restarts from the clock.
func TestClock(t *testing.T) {
	s := newStore(t)
	start := time.Now().UTC().Truncate(time.Millisecond)
	now := start
	h := open(t, Config{Log: s.log, Clock: func() time.Time { return now }})
	must(t, h, commands.RegisterNode{Name: "alpha"})
	now = start.Add(-30 * time.Second)
	if r := must(t, h, commands.RegisterNode{Name: "beta"}); !r.Time.Equal(start) {
		t.Errorf("half a minute back: %s, want %s", r.Time, start)
	}
	now = start.Add(-2 * time.Minute)
	req := request(commands.RegisterNode{Name: "beta"}) // refused: writes nothing
	if _, err := h.Do(t.Context(), req); err == nil {
		t.Error("a taken name was registered")
	}
	r := must(t, h, commands.RegisterNode{Name: "gamma"})
	if !r.Time.Equal(now) {
		t.Errorf("two minutes back: %s, want %s", r.Time, now)
	}
	_, all := fold(t, s.log)
	var steps int
	for _, e := range all {
		if p, ok := e.Data.(*events.MeshClockStepped); ok {
			steps++
			if !p.From.Equal(start) || !p.To.Equal(now) || e.Actor != SystemActor || !e.Time.Equal(p.To) {
				t.Errorf("step: %+v", p)
			}
		}
	}
	if steps != 1 {
		t.Errorf("%d clock steps recorded, want 1", steps)
	}
}

// What is queued when the handler closes is answered.
func TestCloseAnswers(t *testing.T) {
	s := newStore(t)
	h := open(t, Config{Log: s.log})
	var answered atomic.Int64
	for i := range 200 {
		h.Submit(t.Context(), request(commands.RegisterNode{Name: fmt.Sprintf("n-%d", i)}), func(_ commands.Result, err error) {
			if err != nil {
				t.Error(err)
			}
			answered.Add(1)
		})
	}
	h.Close()
	if answered.Load() != 200 {
		t.Errorf("%d of 200 answered", answered.Load())
	}
	if _, err := h.Do(t.Context(), request(commands.RegisterNode{Name: "late"})); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	fold(t, s.log)
}

// Kind: the same command again has another effect, since something happened in
// between. A series that had ended goes on nowhere.
func TestRepeatedSeries(t *testing.T) {
	s := newStore(t)
	h := open(t, Config{Log: s.log})
	seed(t, h)
	m := &manifest.Manifest{Assignments: map[string]manifest.Assignment{"wiki": {Node: "alpha"}}}
	req := request(commands.ApplyManifest{Manifest: m})
	first, err := h.Do(t.Context(), req)
	if err != nil || first.More {
		t.Fatalf("first: more %t, %v", first.More, err)
	}
	must(t, h, commands.EndAssignment{Assignment: "wiki"})
	again, err := h.Do(t.Context(), req)
	if err != nil || !again.Repeated || again.More || again.Seq != first.Seq {
		t.Fatalf("again: %+v, %v", again, err)
	}
	for i := range 1200 {
		m.Assignments[fmt.Sprintf("wiki-%d", i)] = manifest.Assignment{Module: "wiki", Node: "alpha"}
	}
	big := request(commands.ApplyManifest{Manifest: m})
	for range 2 {
		if r, err := h.Do(t.Context(), big); err != nil || !r.More {
			t.Fatalf("a part that is not the last: more %t, %v", r.More, err)
		}
	}
}
