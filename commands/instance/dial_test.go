package instance

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
)

// Kind: a failing start looks like an orderly stop. The connection that answers cannot be
// made: the instance ends with that error, and does not say that it was told to stop.
func TestFailingStartIsAnError(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	nc := dial(t, url)
	found(t, nc, 1)
	cfg := testConfig(func() *nats.Conn { return dial(t, url) }, "a")
	broken := errors.New("there is no file of credentials")
	cfg.Dial = func() (*nats.Conn, error) { return nil, broken }
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := New(cfg).Run(ctx); !errors.Is(err, broken) {
		t.Errorf("it ended with %v", err)
	}
}
