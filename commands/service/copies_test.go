package service

import (
	"testing"

	"github.com/nats-io/nats.go"

	"bindery/commands"
)

// Kind: a command is refused, and carried out. A client that has sent a second copy takes
// no refusal of the first one, which a writer that was deposed may have spoken: only the
// word that something was written counts whoever says it.
func TestRefusalOfAnEarlierCopy(t *testing.T) {
	s := serve(t)
	const refused = `{"error":{"code":"name_taken","message":"x","why":"","fix":{},"candidates":[]},"seq":7}`
	const unchanged = `{"result":{"seq":7,"changed":false},"seq":7}`
	const done = `{"result":{"seq":8,"changed":true},"seq":8}`
	for name, c := range map[string]struct {
		first, second string
		seq           uint64
		code          commands.Code
	}{
		"refused-then-done":   {refused, done, 8, ""},
		"unchanged-then-done": {unchanged, done, 8, ""},
		"done-first":          {done, "", 8, ""},
		"refused-twice":       {refused, refused, 0, commands.NameTaken},
	} {
		t.Run(name, func(t *testing.T) {
			var copies []*nats.Msg
			sub, err := s.nc.Subscribe(CommandSubject(name), func(m *nats.Msg) {
				if copies = append(copies, m); len(copies) != 2 {
					return
				}
				_ = copies[0].Respond([]byte(c.first))
				if c.second != "" {
					_ = copies[1].Respond([]byte(c.second))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sub.Unsubscribe() }()
			client, err := NewClient(s.nc, name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := client.FailOver().Do(t.Context(), newRequest(commands.RegisterNode{Name: "alpha"}))
			if c.code != "" && AsRefusal(err).Code != c.code || c.code == "" && (err != nil || r.Seq != c.seq) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// The same where the connection was broken, and what waited was sent again.
func TestRefusalOfAnEarlierCopyAfterABreak(t *testing.T) {
	s := serve(t)
	asked := make(chan *nats.Msg, 2)
	sub, err := s.nc.Subscribe(CommandSubject("broken"), func(m *nats.Msg) { asked <- m })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	client, err := NewClient(s.nc, "broken")
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan commands.Result, 1)
	go func() {
		r, err := client.Do(t.Context(), newRequest(commands.RegisterNode{Name: "alpha"}))
		if err != nil {
			t.Errorf("%v", err)
		}
		heard <- r
	}()
	first := <-asked
	client.again()
	second := <-asked
	if first.Reply == second.Reply {
		t.Error("the copies cannot be told from each other")
	}
	_ = first.Respond([]byte(`{"error":{"code":"name_taken","message":"x","why":"","fix":{},"candidates":[]}}`))
	_ = second.Respond([]byte(`{"result":{"seq":8,"changed":true},"seq":8}`))
	if r := <-heard; r.Seq != 8 {
		t.Errorf("%+v", r)
	}
}
