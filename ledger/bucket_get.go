package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Get reads what stands under a key: the mark of its deletion, too. An entry with
// revision 0 says that there is nothing. The stream's leader answers
// (STREAM.MSG.GET), so that what was written last is seen.
func (b *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	return b.get(ctx, key, map[string]any{"last_by_subj": b.prefix + key})
}

// At reads the entry of a revision, as Get does. Revision 0 says that it is not
// there any more.
func (b *Bucket) At(ctx context.Context, revision uint64) (Entry, error) {
	return b.get(ctx, "", map[string]any{"seq": revision})
}

func (b *Bucket) get(ctx context.Context, key string, ask map[string]any) (Entry, error) {
	var resp struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string `json:"subject"`
			Seq     uint64 `json:"seq"`
			Header  []byte `json:"hdrs"`
			Data    []byte `json:"data"`
		} `json:"message"`
	}
	err := askAPI(ctx, b.nc, "STREAM.MSG.GET.KV_"+b.name, ask, &resp)
	switch {
	case err != nil:
	case resp.Error != nil && resp.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return Entry{Key: key}, nil
	case resp.Error != nil:
		err = resp.Error
	case resp.Message == nil || !strings.HasPrefix(resp.Message.Subject, b.prefix):
		err = errors.New("the server sent another message")
	}
	if err != nil {
		return Entry{}, fmt.Errorf("reading %q: %w", b.name, err)
	}
	m := resp.Message
	h := nats.Header{}
	if len(m.Header) > 0 {
		if h, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return Entry{}, fmt.Errorf("reading %q: the header of revision %d: %w", b.name, m.Seq, err)
		}
	}
	return entryOf(strings.TrimPrefix(m.Subject, b.prefix), h, m.Data, m.Seq), nil
}

// askAPI asks JetStream's own interface; without a body where ask is nil.
func askAPI(ctx context.Context, nc *nats.Conn, subject string, ask, answer any) error {
	var body []byte
	if ask != nil {
		var err error
		if body, err = json.Marshal(ask); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, jetstream.DefaultAPIPrefix+subject, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(m.Data, answer)
}
