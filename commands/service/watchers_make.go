package service

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// watchConfig is the consumer that a client asks for (server/consumer.go,
// ConsumerConfig). Only what a reader needs is taken over.
type watchConfig struct {
	Name           string        `json:"name"`
	Durable        string        `json:"durable_name"`
	DeliverSubject string        `json:"deliver_subject"`
	DeliverGroup   string        `json:"deliver_group"`
	DeliverPolicy  string        `json:"deliver_policy"`
	OptStartSeq    uint64        `json:"opt_start_seq"`
	OptStartTime   *time.Time    `json:"opt_start_time"`
	FilterSubject  string        `json:"filter_subject"`
	FilterSubjects []string      `json:"filter_subjects"`
	HeadersOnly    bool          `json:"headers_only"`
	Heartbeat      time.Duration `json:"idle_heartbeat"`
}

// readWatch reads a request for a consumer. Its name and its filter may stand in the
// subject, too (rest), and must then be the same.
func readWatch(rest string, body []byte) (watchConfig, error) {
	var q struct {
		Config watchConfig `json:"config"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return q.Config, errBadRequest
	}
	c := &q.Config
	name, filter, _ := strings.Cut(rest, ".")
	if c.Name == "" {
		c.Name = name
	}
	if c.FilterSubject != "" {
		c.FilterSubjects = append([]string{c.FilterSubject}, c.FilterSubjects...)
	}
	if name != "" && name != c.Name || filter != "" && (len(c.FilterSubjects) != 1 || c.FilterSubjects[0] != filter) {
		return q.Config, errBadRequest
	}
	if c.Name == "" {
		c.Name = nuid.Next()
	}
	return q.Config, nil
}

// noToken are the characters that are not part of a literal token of a subject, or of
// a consumer's name.
const noToken = "*> \t\r\n"

// allows decides whether a reader with a key may have a consumer.
func (r reader) allows(c *watchConfig, key string, d documentStream) error {
	switch {
	case c.Durable != "":
		return errDurable
	case c.DeliverSubject == "":
		return errPull
	case !strings.HasPrefix(c.DeliverSubject, InboxOf(key)+".") || strings.ContainsAny(c.DeliverSubject, noToken) || c.DeliverGroup != "":
		return errDeliver
	case len(c.FilterSubjects) > maxWatchFilter, strings.ContainsAny(c.Name, noToken+"./\\"):
		return errBadRequest
	case len(c.FilterSubjects) == 0 && !r.all, slices.ContainsFunc(c.FilterSubjects, func(f string) bool { return !r.sees(d, f) }):
		return errFilter
	}
	return nil
}

// made is the consumer as it is made, in the server's JSON.
func (c *watchConfig) made() map[string]any {
	out := map[string]any{"name": c.Name, "deliver_subject": c.DeliverSubject, "deliver_policy": cmp.Or(c.DeliverPolicy, "all"), "ack_policy": "none", "max_deliver": 1,
		"replay_policy": "instant", "headers_only": c.HeadersOnly, "inactive_threshold": watchInactive, "mem_storage": true, "num_replicas": 1}
	if c.OptStartSeq > 0 {
		out["opt_start_seq"] = c.OptStartSeq
	}
	if c.OptStartTime != nil {
		out["opt_start_time"] = c.OptStartTime
	}
	if c.Heartbeat > 0 {
		out["idle_heartbeat"] = max(c.Heartbeat, minHeartbeat)
	}
	switch filters := c.FilterSubjects; len(filters) {
	case 0:
	case 1:
		out["filter_subject"] = filters[0]
	default:
		out["filter_subjects"] = filters
	}
	return out
}

// create makes a consumer for a reader.
func (w *watchers) create(r reader, key string, d documentStream, rest string, body []byte) (*nats.Msg, error) {
	c, err := readWatch(rest, body)
	if err == nil {
		err = r.allows(&c, key, d)
	}
	if err != nil {
		return nil, err
	}
	id := watchName{d.name, c.Name}
	if err := w.take(id, key); err != nil {
		return nil, err
	}
	call := "CONSUMER.CREATE." + d.name + "." + c.Name
	if len(c.FilterSubjects) == 1 {
		call += "." + c.FilterSubjects[0]
	}
	// "create": what is there under that name, somebody else's, is not changed.
	data, err := json.Marshal(map[string]any{"stream_name": d.name, "config": c.made(), "action": "create"})
	if err != nil {
		return nil, err
	}
	m, err := w.ask(call, data)
	w.taken(id, key, err == nil && isMade(m.Data))
	return m, err
}

// isMade reports whether an answer says that a consumer is there.
func isMade(answer []byte) bool {
	var a struct {
		Error json.RawMessage `json:"error"`
	}
	return json.Unmarshal(answer, &a) == nil && len(a.Error) == 0
}

// taken notes whether a consumer was made that was to be. What is there under that
// name otherwise is somebody else's.
func (w *watchers) taken(name watchName, key string, made bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	had := w.owner[name]
	switch {
	case made:
		w.owner[name] = madeFor{key, time.Now()}
	case had.key == key && had.made.IsZero():
		delete(w.owner, name)
	}
}

// take notes for whom a consumer is to be made.
func (w *watchers) take(name watchName, key string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count(key) >= maxWatches {
		w.mu.Unlock()
		w.refresh()
		w.mu.Lock()
	}
	had, there := w.owner[name]
	if there && had.key != key {
		return errBadRequest
	}
	if w.count(key) >= maxWatches {
		return errMaxWatches
	}
	if !there {
		w.owner[name] = madeFor{key: key}
	}
	return nil
}

func (w *watchers) count(key string) (n int) {
	for _, owner := range w.owner {
		if owner.key == key {
			n++
		}
	}
	return n
}

// own answers a call about a consumer, which must be the key's own.
func (w *watchers) own(call string) func(reader, string, documentStream, string, []byte) (*nats.Msg, error) {
	return func(_ reader, key string, d documentStream, name string, _ []byte) (*nats.Msg, error) {
		w.mu.Lock()
		had := w.owner[watchName{d.name, name}]
		own := had.key == key && !had.made.IsZero()
		if own && call == "CONSUMER.DELETE." {
			delete(w.owner, watchName{d.name, name})
		}
		w.mu.Unlock()
		if !own {
			return nil, errNoConsumer
		}
		return w.ask(call+d.name+"."+name, nil)
	}
}

// refresh looks which consumers there are: those that nobody listened to are gone, an
// earlier writer's are there. Those of keys that are not admitted any more end, and so
// do durable ones, which nobody here has made.
func (w *watchers) refresh() {
	ctx, cancel := context.WithTimeout(w.s.ctx, watchTimeout)
	defer cancel()
	js, err := jetstream.New(w.nc)
	if err != nil {
		return
	}
	there, began := map[watchName]madeFor{}, time.Now()
	for name := range w.docs {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return // it is not there yet, or not now
		}
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			key := w.inboxOwner(info.Config.DeliverSubject)
			switch {
			case info.Config.Durable != "" || info.Config.DeliverSubject != "" && key == "":
				_ = stream.DeleteConsumer(ctx, info.Name) // it will be found again
			case key != "":
				there[watchName{name, info.Name}] = madeFor{key, info.Created}
			}
		}
		if list.Err() != nil {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, had := range w.owner { // what was made meanwhile may not have been seen
		if had.made.IsZero() || had.made.After(began) {
			there[name] = had
		}
	}
	w.owner = there
}

// inboxOwner is the admitted key whose inbox a subject is in.
func (w *watchers) inboxOwner(subject string) string {
	w.s.guestsMu.Lock()
	defer w.s.guestsMu.Unlock()
	for key := range w.s.guests {
		if strings.HasPrefix(subject, InboxOf(key)+".") {
			return key
		}
	}
	return ""
}
