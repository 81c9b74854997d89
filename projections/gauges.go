package projections

import "time"

// Gauges are a few counts of the state that cost little: they are read again and
// again by who watches it.
type Gauges struct {
	Rotations int // open
	Overdue   int // credentials left in those that are overdue
	Holders   int // credentials that can log in
}

// Gauges counts. Its cost goes with providers and embedded instances.
func (s *State) Gauges(now time.Time) Gauges {
	var g Gauges
	s.eachOpen(func(o *Rotation) {
		g.Rotations++
		if o.Overdue(now) {
			g.Overdue += o.Total - o.Done
		}
	})
	for i := 1; i <= s.providers.len(); i++ {
		g.Holders += len(s.providers.at(uint32(i)).Holders.Live)
	}
	for _, h := range s.instances {
		g.Holders += len(h.Live)
	}
	return g
}
