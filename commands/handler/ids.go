package handler

import (
	"crypto/rand"
	"io"
	"time"

	"bindery/events"

	"github.com/oklog/ulid/v2"
)

// NewIDs returns a source of ids whose instant is clock's and which ascend
// within a millisecond. It is not safe for concurrent use. It panics when the
// system's source of randomness fails.
func NewIDs(clock func() time.Time) func() events.ID {
	return IDsFrom(clock, rand.Reader)
}

// IDsFrom is NewIDs with a given source of randomness.
func IDsFrom(clock func() time.Time, entropy io.Reader) func() events.ID {
	mono := ulid.Monotonic(entropy, 0)
	return func() events.ID { return events.ID(ulid.MustNew(ulid.Timestamp(clock()), mono)) }
}
