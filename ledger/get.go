package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/events"
)

// NotFoundError says that the stream has no message of a sequence.
type NotFoundError struct{ Seq uint64 }

func (e *NotFoundError) Error() string { return fmt.Sprintf("no message of sequence %d", e.Seq) }

// apiTimeout bounds one question to the server: its answer may have been lost.
const apiTimeout = 5 * time.Second

// getParallel is how many messages are asked for at once. The server answers
// each from its own small task; more only queue up.
const getParallel = 16

// Get returns the records from sequence first to last as they are stored, one
// request each: for small ranges, such as what one command wrote. Nothing is
// verified. The stream's leader answers (STREAM.MSG.GET), so that what was
// acknowledged is seen; a direct get may come from a replica that lags. A
// sequence that is not there is a *NotFoundError.
func (l *Log) Get(ctx context.Context, first, last uint64) ([]events.Record, error) {
	if last < first {
		return nil, nil
	}
	if l.src != nil {
		return l.getElsewhere(ctx, first, last)
	}
	out := make([]events.Record, last-first+1)
	if len(out) == 1 {
		r, err := l.get(ctx, first)
		out[0] = r
		return out, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(getParallel, len(out)) {
		wg.Go(func() {
			for i := range next {
				r, err := l.get(ctx, first+uint64(i))
				if err != nil {
					cancel(err) // the first cause stays
				}
				out[i] = r
			}
		})
	}
	for i := range out {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return out, nil
}

func (l *Log) get(ctx context.Context, seq uint64) (events.Record, error) {
	var resp struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string `json:"subject"`
			Seq     uint64 `json:"seq"`
			Header  []byte `json:"hdrs"`
			Data    []byte `json:"data"`
		} `json:"message"`
	}
	ask := map[string]uint64{"seq": seq}
	err := l.api(ctx, "STREAM.MSG.GET."+l.stream, ask, &resp)
	switch {
	case err != nil:
	case resp.Error != nil && resp.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return events.Record{}, &NotFoundError{Seq: seq}
	case resp.Error != nil:
		err = resp.Error
	case resp.Message == nil || resp.Message.Seq != seq:
		err = errors.New("the server sent another message")
	}
	if err != nil {
		return events.Record{}, fmt.Errorf("getting sequence %d: %w", seq, err)
	}
	m := resp.Message
	h := nats.Header{}
	if len(m.Header) > 0 {
		if h, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return events.Record{}, fmt.Errorf("getting sequence %d: its header: %w", seq, err)
		}
	}
	return record(m.Seq, m.Subject, h, m.Data), nil
}

// record makes a stored message a record: without the server's own headers,
// which differ from try to try and are no part of the event.
func record(seq uint64, subject string, h nats.Header, data []byte) events.Record {
	for name := range h {
		if strings.HasPrefix(name, "Nats-") {
			delete(h, name)
		}
	}
	return events.Record{Seq: seq, Subject: subject, Header: h, Data: data}
}

// api asks JetStream's own interface; without a body where ask is nil.
func (l *Log) api(ctx context.Context, subject string, ask, answer any) error {
	return askAPI(ctx, l.nc, subject, ask, answer)
}
