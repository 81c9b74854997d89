package service

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/commands/readmodel"
	"bindery/events"
	"bindery/projections"
)

// Any NATS client can read and watch the documents (readmodel) with a granted key,
// with WatchPrefix in place of "$JS.API". JetStream itself is never asked by a
// caller: a consumer may deliver anywhere, and an answer goes wherever the request
// says. This takes the few calls that reading a key-value bucket needs, looks at each,
// and puts those to JetStream that are a reader's: documents that the key may see,
// delivered to the key's own inbox.

// watchPrefix is the verb that the calls of JetStream's API follow.
const watchPrefix = "js."

// WatchPrefix is the prefix of the JetStream API for who watches documents.
func WatchPrefix(mesh string) string { return SubjectRoot + "." + mesh + ".js" }

// Bounds of watching.
const (
	maxWatches     = 64              // consumers of one key at a time
	watchInactive  = 5 * time.Minute // how long a consumer stays that nobody listens to; that of clients' ordered consumers
	watchTimeout   = 5 * time.Second // of one call to JetStream
	maxWatchFilter = 64              // filters of one consumer
	minHeartbeat   = 100 * time.Millisecond
)

// watchers answers the calls.
type watchers struct {
	s    *Service
	nc   *nats.Conn // has all rights
	docs map[string]documentStream

	mu    sync.Mutex
	owner map[watchName]madeFor
}

// madeFor says for whom a consumer was made, and when.
type madeFor struct {
	key  string
	made time.Time // zero: it is being made, and may turn out to be another's
}

type watchName struct{ stream, consumer string }

// documentStream is the stream of a bucket that may be read.
type documentStream struct{ name, prefix string } // prefix of the subjects, before the key

func newWatchers(s *Service, nc *nats.Conn) *watchers {
	w := &watchers{s: s, nc: nc, docs: map[string]documentStream{}, owner: map[watchName]madeFor{}}
	for _, bucket := range []string{readmodel.Bindings(s.cfg.Mesh), readmodel.Holders(s.cfg.Mesh)} {
		w.docs["KV_"+bucket] = documentStream{"KV_" + bucket, "$KV." + bucket + "."}
	}
	return w
}

// apiError is an error of the JetStream API (server/errors.json).
type apiError struct {
	Code        int                 `json:"code"`
	ErrCode     jetstream.ErrorCode `json:"err_code"`
	Description string              `json:"description"`
}

func (e *apiError) Error() string { return e.Description }

var (
	errNoStream    = &apiError{404, 10059, "stream not found"}
	errNoConsumer  = &apiError{404, 10014, "consumer not found"}
	errBadRequest  = &apiError{400, 10003, "bad request"}
	errDeliver     = &apiError{403, 10003, "documents are delivered to the inbox of the key alone: use an inbox prefix of _INBOX.<key>"}
	errDurable     = &apiError{403, 10003, "documents are watched by consumers without a durable name"}
	errPull        = &apiError{403, 10003, "documents are watched by push consumers"}
	errFilter      = &apiError{403, 10003, "the key may not read these documents"}
	errTooFast     = &apiError{429, 10003, "the key makes too many consumers at a time"}
	errMaxWatches  = &apiError{400, 10026, "maximum consumers limit reached"}
	errUnavailable = &apiError{503, 10008, "JetStream system temporarily unavailable"}
)

// serve answers one call. It does not block.
func (w *watchers) serve(req *guestRequest, call string) {
	if !req.answerable() || !w.s.begin() {
		return
	}
	done := w.s.place(req)
	go func() {
		defer w.s.running.Done()
		defer done()
		m, err := w.answer(req, call)
		if err != nil {
			var api *apiError
			if !errors.As(err, &api) {
				api = errUnavailable
			}
			_ = req.RespondJSON(map[string]any{"type": "io.nats.jetstream.api.v1.error", "error": api})
			return
		}
		if req.crowded() {
			return
		}
		m.Subject, m.Reply = req.m.Reply, ""
		_ = req.guest.conn.PublishMsg(m)
	}()
}

// reader is what a key may read.
type reader struct {
	all  bool
	node events.ID // of an agent
}

// reader looks up the grant of a key.
func (w *watchers) reader(key string) (r reader, ok bool) {
	if key == w.s.cfg.Door.Local {
		return reader{all: true}, true
	}
	w.s.state.View(func(st *projections.State) {
		ref := st.GrantOf(key)
		if ref == 0 {
			return
		}
		g := st.Grant(ref)
		switch g.Role {
		case events.RoleOperator, events.RoleAuditor:
			r, ok = reader{all: true}, true
		case events.RoleAgent:
			r, ok = reader{node: st.Node(g.Node).ID}, true
		}
	})
	return r, ok
}

// sees reports whether all documents that a filter can match may be read.
func (r reader) sees(d documentStream, filter string) bool {
	key, ok := strings.CutPrefix(filter, d.prefix)
	ok = ok && !strings.ContainsAny(filter, " \t\r\n") // it becomes a part of a subject
	return ok && (r.all || key == readmodel.WholeKey || strings.HasPrefix(key, r.node.String()+"."))
}

// answer decides on a call and puts it to JetStream.
func (w *watchers) answer(req *guestRequest, call string) (*nats.Msg, error) {
	r, ok := w.reader(req.guest.key)
	if !ok {
		return nil, errNoStream
	}
	if call == "INFO" {
		return accountInfo(len(w.docs)), nil
	}
	if call == "STREAM.NAMES" {
		return w.streamNames()
	}
	create := func(r reader, key string, d documentStream, rest string, body []byte) (*nats.Msg, error) {
		if !req.guest.watches.Allow() {
			return nil, errTooFast
		}
		return w.create(r, key, d, rest, body)
	}
	for name, f := range map[string]func(r reader, key string, d documentStream, rest string, body []byte) (*nats.Msg, error){
		"STREAM.INFO.": w.info, "STREAM.MSG.GET.": w.get, "DIRECT.GET.": w.direct,
		"CONSUMER.CREATE.": create, "CONSUMER.INFO.": w.own("CONSUMER.INFO."), "CONSUMER.DELETE.": w.own("CONSUMER.DELETE."),
	} {
		if rest, ok := strings.CutPrefix(call, name); ok {
			stream, rest, _ := strings.Cut(rest, ".")
			d, ok := w.docs[stream]
			if !ok {
				return nil, errNoStream
			}
			return f(r, req.guest.key, d, rest, req.m.Data)
		}
	}
	return nil, errBadRequest
}

// ask puts a call to JetStream, whose answer is handed on as it is.
func (w *watchers) ask(call string, body []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(w.s.ctx, watchTimeout)
	defer cancel()
	m, err := w.nc.RequestWithContext(ctx, jetstream.DefaultAPIPrefix+call, body)
	if err != nil {
		return nil, err
	}
	return &nats.Msg{Header: m.Header, Data: m.Data}, nil
}

// accountInfo is what clients ask for to see whether there is JetStream.
func accountInfo(streams int) *nats.Msg {
	data, _ := json.Marshal(map[string]any{"type": "io.nats.jetstream.api.v1.account_info_response", "memory": 0, "storage": 0, "streams": streams, "consumers": 0,
		"limits": map[string]int{"max_memory": -1, "max_storage": -1, "max_streams": -1, "max_consumers": maxWatches}, "api": map[string]int{"total": 0, "errors": 0}})
	return &nats.Msg{Data: data}
}

func (w *watchers) streamNames() (*nats.Msg, error) {
	var names []string
	for name := range w.docs {
		names = append(names, name)
	}
	slices.Sort(names)
	data, err := json.Marshal(map[string]any{"type": "io.nats.jetstream.api.v1.stream_names_response", "total": len(names), "offset": 0, "limit": 1024, "streams": names})
	return &nats.Msg{Data: data}, err
}

// info tells how a stream is. What the request asks for beyond that (which keys
// there are) is not told.
func (w *watchers) info(_ reader, _ string, d documentStream, rest string, _ []byte) (*nats.Msg, error) {
	if rest != "" {
		return nil, errBadRequest
	}
	return w.ask("STREAM.INFO."+d.name, nil)
}

// getRequest is what a message is asked for by (server/stream.go, JSApiMsgGetRequest);
// what it has beyond is for several messages at once.
type getRequest struct {
	Seq     uint64 `json:"seq,omitempty"`
	LastFor string `json:"last_by_subj,omitempty"`
	NextFor string `json:"next_by_subj,omitempty"`
}

// allowed reads the request for a message, as far as a reader may have it.
func (r reader) allowed(d documentStream, body []byte) ([]byte, error) {
	var q getRequest
	if err := strict(body, &q); err != nil {
		return nil, errBadRequest
	}
	for _, subject := range []string{q.LastFor, q.NextFor} {
		if subject != "" && !r.sees(d, subject) {
			return nil, errFilter
		}
	}
	if q.LastFor == "" && q.NextFor == "" && !r.all {
		return nil, errFilter // by a number it could be anybody's
	}
	return json.Marshal(q)
}

func (w *watchers) get(r reader, _ string, d documentStream, rest string, body []byte) (*nats.Msg, error) {
	body, err := r.allowed(d, body)
	if err != nil || rest != "" {
		return nil, errOr(err, errBadRequest)
	}
	return w.ask("STREAM.MSG.GET."+d.name, body)
}

func (w *watchers) direct(r reader, _ string, d documentStream, rest string, body []byte) (*nats.Msg, error) {
	if rest == "" {
		body, err := r.allowed(d, body)
		if err != nil {
			return nil, err
		}
		return w.ask("DIRECT.GET."+d.name, body)
	}
	if !r.sees(d, rest) {
		return nil, errFilter
	}
	return w.ask("DIRECT.GET."+d.name+"."+rest, nil)
}

func errOr(err error, other *apiError) error {
	if err != nil {
		return err
	}
	return other
}
