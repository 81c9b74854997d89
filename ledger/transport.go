package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// answer is what came back for one message that was sent to the stream.
type answer struct {
	seq   uint64 // the sequence it was given, where err is nil
	batch int    // for a batch: how many messages were stored
	err   error  // *jetstream.APIError: the stream refused it; else: no answer, and why
}

// errNoAnswer stands in an answer that did not come in time.
var errNoAnswer = errors.New("no answer in time")

// transport carries messages to the stream.
type transport interface {
	// exchange sends msgs in order and waits for the answers to msgs[from:],
	// which it returns, one each; the messages before ask for none. It returns
	// early only when ctx ends: what has not been answered by then has
	// errNoAnswer. Nothing is sent twice. It does not keep msgs; their Reply
	// is its own. One call at a time.
	exchange(ctx context.Context, msgs []*nats.Msg, from int) []answer
}

// natsTransport is the transport over a NATS connection.
type natsTransport struct {
	nc *nats.Conn

	// For more than one answer: a subscription of its own, kept.
	inbox   string
	answers chan *nats.Msg
	flight  uint64 // distinguishes answers to an earlier exchange
}

// maxAnswers bounds what one exchange may wait for; late answers of earlier
// ones come on top.
const maxAnswers = 4 * maxPipelined

var _ transport = (*natsTransport)(nil)

func (t *natsTransport) exchange(ctx context.Context, msgs []*nats.Msg, from int) []answer {
	out := make([]answer, len(msgs)-from)
	if len(out) == 1 {
		for _, m := range msgs[:from] {
			m.Reply = ""
			if err := t.nc.PublishMsg(m); err != nil {
				out[0] = answer{err: fmt.Errorf("sending: %w", err)}
				return out
			}
		}
		m, err := t.nc.RequestMsgWithContext(ctx, msgs[from])
		out[0] = readAnswer(m, err)
		return out
	}
	for i := range out {
		out[i].err = errNoAnswer
	}
	if err := t.listen(); err != nil {
		out[0].err = fmt.Errorf("sending: %w", err)
		return out
	}
	t.flight++
	prefix := t.inbox + strconv.FormatUint(t.flight, 36) + "."
	waiting := 0
	for i, m := range msgs {
		m.Reply = ""
		if i >= from {
			m.Reply = prefix + strconv.Itoa(i-from)
		}
		if err := t.nc.PublishMsg(m); err != nil {
			if i >= from {
				out[i-from].err = fmt.Errorf("sending: %w", err)
			} else {
				out[0].err = fmt.Errorf("sending: %w", err)
			}
			break
		}
		if i >= from {
			waiting++
		}
	}
	for waiting > 0 {
		select {
		case m := <-t.answers:
			n, ok := strings.CutPrefix(m.Subject, prefix)
			i, err := strconv.Atoi(n)
			if !ok || err != nil || i >= len(out) {
				continue // of an earlier exchange
			}
			out[i] = readAnswer(m, nil)
			waiting--
		case <-ctx.Done():
			return out
		}
	}
	return out
}

func (t *natsTransport) listen() error {
	if t.answers != nil {
		return nil
	}
	inbox, answers := t.nc.NewInbox()+".", make(chan *nats.Msg, maxAnswers)
	if _, err := t.nc.ChanSubscribe(inbox+"*.*", answers); err != nil {
		return err
	}
	t.inbox, t.answers = inbox, answers
	return nil
}

// readAnswer reads a publish acknowledgement (server/stream.go, JSPubAckResponse).
func readAnswer(m *nats.Msg, err error) answer {
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrTimeout) {
			err = errNoAnswer
		}
		return answer{err: err}
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return answer{err: nats.ErrNoResponders}
	}
	var ack struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
		Count  int                 `json:"count"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return answer{err: fmt.Errorf("an answer that cannot be read: %w", err)}
	}
	if ack.Error != nil {
		return answer{err: ack.Error}
	}
	if ack.Stream == "" || ack.Seq == 0 {
		return answer{err: errors.New("an answer that is no acknowledgement")}
	}
	return answer{seq: ack.Seq, batch: ack.Count}
}
