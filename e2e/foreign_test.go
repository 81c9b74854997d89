package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/events"
)

// intruder publishes into a stream what the ledger's writer has not written. It knows
// everything that can be read there.
type intruder struct {
	mesh  events.ID
	seq   uint64 // of the stream's last message
	chain events.Chain
	last  *jetstream.RawStreamMsg
}

// next is the last event once more, as a command that continues the ledger: changed,
// and with a chain value that is right.
func (i *intruder) next(batch string, change func(m *nats.Msg)) *nats.Msg {
	m := &nats.Msg{Subject: i.last.Subject, Header: nats.Header{}, Data: i.last.Data}
	for name, v := range i.last.Header {
		if !strings.HasPrefix(name, "Nats-") {
			m.Header[name] = v
		}
	}
	m.Header[events.HeaderBatch] = []string{batch}
	if change != nil {
		change(m)
	}
	i.seq++
	i.chain = i.chain.Link(i.mesh, &events.Record{Seq: i.seq, Subject: m.Subject, Header: m.Header, Data: m.Data})
	m.Header[events.HeaderChain] = []string{i.chain.String()}
	return m
}

// intrusions are what may be published.
var intrusions = map[string]func(i *intruder) []*nats.Msg{
	"an unknown type": func(i *intruder) []*nats.Msg {
		return []*nats.Msg{i.next("1/1", func(m *nats.Msg) { m.Header["ce-type"] = []string{"bindery.node.painted.v1"} })}
	},
	"an event that does not fit": func(i *intruder) []*nats.Msg { return []*nats.Msg{i.next("1/1", nil)} },
	"half a command":             func(i *intruder) []*nats.Msg { return []*nats.Msg{i.next("1/3", nil), i.next("2/3", nil)} },
	"a forged command": func(i *intruder) []*nats.Msg {
		return []*nats.Msg{i.next("1/1", func(m *nats.Msg) {
			id := events.ID{1, 2, 3}
			m.Subject = events.SubjectFor("home", events.Type{Entity: events.EntityNode, Name: "registered"}, id)
			m.Header["ce-type"], m.Header["ce-id"], m.Header["ce-command"] = []string{"bindery.node.registered.v1"}, []string{id.String()}, []string{id.String()}
			m.Data = []byte(`{"name":"intruder"}`)
		})}
	},
	"a chain value and nothing else": func(*intruder) []*nats.Msg {
		return []*nats.Msg{{Subject: "bindery.home.junk", Header: nats.Header{events.HeaderChain: {strings.Repeat("b", 64)}}}}
	},
	"junk": func(*intruder) []*nats.Msg {
		return []*nats.Msg{{Subject: "bindery.home.junk", Data: []byte("no event")}}
	},
	"much of it": func(i *intruder) (out []*nats.Msg) {
		for range 500 {
			out = append(out, i.next("1/1", nil), &nats.Msg{Subject: "bindery.home.junk"})
			i.seq++
		}
		return out
	},
}

// intrude publishes into the stream of a store that nobody serves, and returns the
// sequences of the first and the last message.
func (d *damaged) intrude(what func(i *intruder) []*nats.Msg) (first, last uint64) {
	d.t.Helper()
	d.onServer(func(nc *nats.Conn) error {
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		stream, err := js.Stream(d.t.Context(), "bindery-home")
		if err != nil {
			return err
		}
		i := &intruder{seq: stream.CachedInfo().State.LastSeq}
		if i.last, err = stream.GetMsg(d.t.Context(), i.seq); err != nil {
			return err
		}
		if i.chain, err = events.ParseChain(i.last.Header.Get(events.HeaderChain)); err != nil {
			return err
		}
		if i.mesh, err = events.ParseID(strings.TrimPrefix(i.last.Header.Get("ce-source"), "/bindery/")); err != nil {
			return err
		}
		first = i.seq + 1
		for _, m := range what(i) {
			ack, err := js.PublishMsg(d.t.Context(), m)
			if err != nil {
				return err
			}
			last = ack.Sequence
		}
		return nil
	})
	return first, last
}

// Kind: whoever can publish into the stream of a store writes its history, or keeps its
// writer from going on. What is not proven changes nothing, stops nobody, is told of
// until somebody has acknowledged it, and is told by audit verify with its place.
func TestIntrusions(t *testing.T) {
	t.Parallel()
	base := smallBase(t)
	for name, what := range intrusions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := base.copied(t)
			before := d.must(t, "assignment", "list", "-o", "json")
			first, last := d.intrude(what)
			attention := func(want int) {
				t.Helper()
				var v struct {
					Attention []struct{ Code, What, Why string }
				}
				if err := json.Unmarshal([]byte(d.must(t, "status", "-o", "json")), &v); err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, a := range v.Attention {
					if a.Code == "foreign_event" {
						if n++; !strings.Contains(a.Why, fmt.Sprintf("the first is at sequence %d", first)) {
							t.Errorf("the place is not told: %+v", a)
						}
					}
				}
				if n != want {
					t.Errorf("status tells %d times of what is foreign, want %d: %+v", n, want, v.Attention)
				}
			}
			attention(1)
			if r := d.run(t, "status", "--check"); r.code != 3 {
				t.Errorf("status --check: exit %d\n%s", r.code, r.stderr)
			}
			d.must(t, "node", "register", "epsilon")
			if got := d.must(t, "assignment", "list", "-o", "json"); sansSeq(t, got) != sansSeq(t, before) {
				t.Error("the state is another one")
			}
			if nodes := d.must(t, "node", "list", "-q"); strings.Contains(nodes, "intruder") || !strings.Contains(nodes, "epsilon") {
				t.Errorf("the nodes: %s", nodes)
			}
			if log := d.must(t, "log", "-o", "json"); strings.Contains(log, "intruder") || strings.Contains(log, fmt.Sprintf(`"seq": %d,`, first)) {
				t.Errorf("the log shows what is no part of the ledger:\n%s", log)
			}
			if r, v := d.verify(); r.code != 9 || !strings.Contains(r.stderr, fmt.Sprintf("sequence %d", first)) || v.Foreign != last-first+1 || v.Seq != last+1 {
				t.Errorf("audit verify: exit %d, %+v\n%s", r.code, v, r.stderr)
			}
			s := d.serve(t)
			attention(1)
			s.stop(t, syscall.SIGTERM)
			d.refused(t, "reason_required", 2, "audit", "recover")
			r := read[recovered](t, d.cli, "audit", "recover", "--reason", "a test wrote it")
			if len(r.Events) != 1 || r.Seq != last+2 || r.Events[0].Data.FoundSeq != last+1 {
				t.Errorf("acknowledged: %+v", r)
			}
			attention(0)
			d.must(t, "node", "register", "zeta")
			d.refused(t, "nothing_lost", 4, "audit", "recover", "--accept-loss", "--reason", "again")
			first, _ = d.intrude(intrusions["junk"])
			attention(1)
		})
	}
}

// sansSeq is an answer without the sequence as of which it is.
func sansSeq(t *testing.T, text string) string {
	t.Helper()
	var v map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	delete(v, "seq")
	delete(v, "time")
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
