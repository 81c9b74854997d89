package ledger

import "time"

// costs learns what appending costs and says which of two ways is cheaper for
// a group of n commands of one event each: n pipelined publishes, each with an
// fsync of its own, or one atomic batch, which stages its messages in a store
// of its own first and then needs one fsync. Where they break even depends on
// the disk, the replicas and the distance to the server.
//
// Each way is modelled as fixed + each·n, fitted by least squares in which old
// measurements fade. A little of the first guess never fades: it keeps the fit
// well-posed while all groups are of one size.
type costs struct {
	single, batch line
	asked         int // decisions since the last probe
}

const (
	// fade is what a measurement's weight is multiplied by with each later one:
	// the last 20 or so count.
	fade = 0.95
	// guessWeight is the lasting weight of the first guess, in measurements.
	guessWeight = 0.05
	// probeEvery decisions the way that seems dearer is taken once, if that
	// costs at most probeFactor times as much: else a disk that has become
	// faster is never noticed.
	probeEvery  = 100
	probeFactor = 3
)

// The first guess was measured on one replica: 0.14 ms for a publish and 2 ms
// for a batch and 7 µs for each message of it. They break even at 14.
func newCosts() *costs {
	return &costs{
		single: newLine(30*time.Microsecond, 140*time.Microsecond),
		batch:  newLine(1900*time.Microsecond, 7*time.Microsecond),
	}
}

// useBatch reports whether a batch is the better way for n single events.
func (c *costs) useBatch(n int) bool {
	if n < 2 {
		return false // a batch of one is a publish with more work
	}
	s, b := c.single.at(n), c.batch.at(n)
	batch := b < s
	if c.asked++; c.asked >= probeEvery && max(s, b) <= probeFactor*min(s, b) {
		c.asked = 0
		return !batch
	}
	return batch
}

// learn takes a measurement of n messages stored at once, without trouble.
func (c *costs) learn(batch bool, n int, took time.Duration) {
	if batch {
		c.batch.learn(n, took)
	} else {
		c.single.learn(n, took)
	}
}

// line is a weighted least-squares fit of nanoseconds over messages.
type line struct {
	guess, seen sums
}

type sums struct{ w, x, xx, y, xy float64 }

func (s *sums) add(weight, x, y float64) {
	s.w += weight
	s.x += weight * x
	s.xx += weight * x * x
	s.y += weight * y
	s.xy += weight * x * y
}

func newLine(fixed, each time.Duration) line {
	var l line
	for _, n := range []float64{1, 16, 64} {
		l.guess.add(guessWeight/3, n, float64(fixed)+n*float64(each))
	}
	return l
}

func (l *line) learn(n int, took time.Duration) {
	s := &l.seen
	s.w, s.x, s.xx, s.y, s.xy = s.w*fade, s.x*fade, s.xx*fade, s.y*fade, s.xy*fade
	s.add(1, float64(n), float64(took))
}

// at is the expected cost of n messages, in nanoseconds; never negative.
func (l *line) at(n int) float64 {
	w, x, xx := l.guess.w+l.seen.w, l.guess.x+l.seen.x, l.guess.xx+l.seen.xx
	y, xy := l.guess.y+l.seen.y, l.guess.xy+l.seen.xy
	each := (w*xy - x*y) / (w*xx - x*x)
	fixed := (y - each*x) / w
	// Neither cost is negative: the best line with the other one alone.
	switch {
	case each < 0:
		each, fixed = 0, y/w
	case fixed < 0:
		each, fixed = xy/xx, 0
	}
	return fixed + each*float64(n)
}
