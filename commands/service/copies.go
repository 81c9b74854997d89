package service

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/events"
)

// waiter collects the parts of one answer. What it asks may be sent several times: each
// copy is answered by itself.
type waiter struct {
	subject string
	data    []byte           // what was asked
	command bool             // what was asked may write
	copies  int              // that were sent
	parts   map[int][][]byte // by copy
	done    chan result
}

type result struct {
	data []byte
	err  error
}

// publish sends another copy of what a waiter asks, signed now.
func (c *Client) publish(token string, w *waiter) error {
	w.copies++
	m := &nats.Msg{Subject: w.subject, Reply: c.inbox + "." + token + "-" + strconv.Itoa(w.copies), Data: w.data}
	if c.key != nil {
		if err := sign(m, c.who.Audience(), *c.key, time.Now()); err != nil {
			return err
		}
	}
	return c.nc.PublishMsg(m)
}

// again sends what waits for an answer once more.
func (c *Client) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for token, w := range c.waiting {
		_ = c.publish(token, w) // the next break sends it again
	}
}

// fail ends every wait.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for token, w := range c.waiting {
		delete(c.waiting, token)
		w.done <- result{err: err}
	}
}

// noResponders is the status a server answers with where nobody listens
// (server/client.go, NoResponders).
const noResponders = "503"

func (c *Client) deliver(m *nats.Msg) {
	token, number, _ := strings.Cut(m.Subject[len(c.inbox)+1:], "-")
	copied, _ := strconv.Atoi(number)
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[token]
	if w == nil {
		return // nobody waits any more
	}
	var out result
	if len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
		out.err = nats.ErrNoResponders
	} else {
		k, n := 1, 1
		if part := m.Header.Get(HeaderPart); part != "" {
			var err error
			if k, n, err = events.ParseBatch(part); err != nil {
				out.err = errLostPart
			}
		}
		if w.parts == nil {
			w.parts = map[int][][]byte{}
		}
		w.parts[copied] = append(w.parts[copied], m.Data)
		if out.err == nil && k != len(w.parts[copied]) {
			out.err = errLostPart
		}
		if out.err == nil && k < n {
			return
		}
		out.data = join(w.parts[copied])
	}
	if copied < w.copies && !w.counts(out) {
		return // a later copy is under way, which may be carried out
	}
	delete(c.waiting, token)
	w.done <- out
}

// counts reports whether the answer to a copy that is not the last one sent counts. That
// something was written is so, whoever says it. That nothing was is so for that copy
// alone: who answered may have been deposed since, and the next writer decides the next
// copy anew.
func (w *waiter) counts(out result) bool {
	if out.err != nil {
		return false
	}
	if !w.command {
		return true
	}
	var a struct {
		Error  json.RawMessage `json:"error"`
		Result struct {
			Changed bool `json:"changed"`
		} `json:"result"`
	}
	return json.Unmarshal(out.data, &a) == nil && a.Error == nil && a.Result.Changed
}

func join(parts [][]byte) []byte {
	if len(parts) == 1 {
		return parts[0]
	}
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
