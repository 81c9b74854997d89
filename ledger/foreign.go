package ledger

import "sort"

// Foreign is what was found in the stream that is no part of the ledger.
type Foreign struct {
	Count uint64   // messages
	Seqs  []uint64 // their sequences, ascending; the first MaxForeign of them
	// Open are those that lie after the last mesh.recovered: nobody has acknowledged
	// them. FirstOpen is the first of them, 0 where there is none.
	Open, FirstOpen uint64
}

// MaxForeign is how many sequences of foreign messages are listed.
const MaxForeign = 1000

// Skipped is what a reader of the ledger up to some sequence has found out about
// messages that are no part of it; a snapshot keeps it.
type Skipped struct {
	Spans     []Span `json:"spans,omitempty"`     // ascending, apart from each other
	Recovered uint64 `json:"recovered,omitempty"` // the last mesh.recovered
}

// Span is a run of sequences, both ends included.
type Span struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// spans is a set of sequences: as many runs as the ledger's own events leave.
type spans []Span

// find is the index of the first run that ends at or after a sequence.
func (s spans) find(seq uint64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].Last >= seq })
}

func (s spans) has(seq uint64) bool {
	i := s.find(seq)
	return i < len(s) && s[i].First <= seq
}

func (s spans) count() (n uint64) {
	for _, p := range s {
		n += p.Last - p.First + 1
	}
	return n
}

// add adds one sequence, mostly at the end.
func (s *spans) add(seq uint64) {
	i := s.find(seq)
	v := *s
	if i < len(v) && v[i].First <= seq {
		return
	}
	joinsBefore := i > 0 && v[i-1].Last+1 == seq
	joinsAfter := i < len(v) && v[i].First == seq+1
	switch {
	case joinsBefore && joinsAfter:
		v[i-1].Last = v[i].Last
		*s = append(v[:i], v[i+1:]...)
	case joinsBefore:
		v[i-1].Last = seq
	case joinsAfter:
		v[i].First = seq
	default:
		v = append(v, Span{})
		copy(v[i+1:], v[i:])
		v[i] = Span{First: seq, Last: seq}
		*s = v
	}
}

// remove takes one sequence out.
func (s *spans) remove(seq uint64) {
	i := s.find(seq)
	v := *s
	if i == len(v) || v[i].First > seq {
		return
	}
	p := v[i]
	var left []Span
	if p.First < seq {
		left = append(left, Span{p.First, seq - 1})
	}
	if seq < p.Last {
		left = append(left, Span{seq + 1, p.Last})
	}
	*s = append(v[:i:i], append(left, v[i+1:]...)...)
}

// Foreign returns the foreign messages that reading has found so far, each counted
// once.
func (l *Log) Foreign() Foreign {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := Foreign{Count: l.foreign.count()}
	for _, p := range l.foreign {
		for seq := p.First; seq <= p.Last && len(f.Seqs) < MaxForeign; seq++ {
			f.Seqs = append(f.Seqs, seq)
		}
		if first := max(p.First, l.recovered+1); first <= p.Last {
			f.Open += p.Last - first + 1
			if f.FirstOpen == 0 {
				f.FirstOpen = first
			}
		}
	}
	return f
}

// IsForeign reports whether reading has found the message of a sequence to be no
// part of the ledger.
func (l *Log) IsForeign(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.foreign.has(seq)
}

// Skipped is what reading has found out up to a sequence.
func (l *Log) Skipped(to uint64) Skipped {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := Skipped{Recovered: l.recovered}
	for _, p := range l.foreign {
		if p.First <= to {
			out.Spans = append(out.Spans, Span{p.First, min(p.Last, to)})
		}
	}
	return out
}

// Skip tells the log what an earlier reader had found out.
func (l *Log) Skip(s Skipped) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recovered = max(l.recovered, s.Recovered)
	for _, p := range s.Spans {
		l.addForeign(p)
	}
}

// addForeign notes a run. l.mu is held.
func (l *Log) addForeign(p Span) {
	if n := len(l.foreign); n == 0 || l.foreign[n-1].Last+1 < p.First {
		l.foreign = append(l.foreign, p)
		return
	}
	for seq := p.First; seq <= p.Last; seq++ {
		l.foreign.add(seq)
	}
}

// noteForeign notes messages that are no part of the ledger.
func (l *Log) noteForeign(found spans) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range found {
		l.addForeign(p)
	}
}

// noteEvents takes back what was noted of messages that are events after all: a
// command was being stored while it was read.
func (l *Log) noteEvents(first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.foreign); n == 0 || l.foreign[n-1].Last < first {
		return
	}
	for seq := first; seq <= last; seq++ {
		l.foreign.remove(seq)
	}
}

// noteRecovered notes where what was skipped before was acknowledged.
func (l *Log) noteRecovered(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recovered = max(l.recovered, seq)
}
