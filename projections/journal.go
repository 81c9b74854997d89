package projections

// A journal remembers how to take changes of the state back, newest first. The
// writer decides on the one state there is: what is not yet durable is folded
// into it under the journal, and rolled back when the log does not take it.
// While replaying there is nothing to take back, and the journal is off.
type journal struct {
	on   bool
	undo []func()
}

// A Mark is a point of the journal to roll back to.
type Mark int

// Begin switches the journal on; Commit or a Rollback to the mark it returns
// ends what it began.
func (s *State) Begin() Mark {
	s.j.on = true
	return s.Mark()
}

// Mark is the present point of the journal.
func (s *State) Mark() Mark { return Mark(len(s.j.undo)) }

// Rollback takes back every change since m.
func (s *State) Rollback(m Mark) {
	for i := len(s.j.undo) - 1; i >= int(m); i-- {
		s.j.undo[i]()
		s.j.undo[i] = nil
	}
	s.j.undo = s.j.undo[:m]
}

// Commit keeps every change and forgets how to take it back.
func (s *State) Commit() {
	clear(s.j.undo)
	s.j.undo = s.j.undo[:0]
	s.j.on = false
	s.commands.compact()
}

// set is *p = v that can be taken back.
func set[T any](j *journal, p *T, v T) {
	if j.on {
		old := *p
		j.undo = append(j.undo, func() { *p = old })
	}
	*p = v
}

// put is m[k] = v that can be taken back.
func put[K comparable, V any](j *journal, m map[K]V, k K, v V) {
	if j.on {
		old, had := m[k]
		j.undo = append(j.undo, func() {
			if had {
				m[k] = old
			} else {
				delete(m, k)
			}
		})
	}
	m[k] = v
}

// drop is delete(m, k) that can be taken back.
func drop[K comparable, V any](j *journal, m map[K]V, k K) {
	old, had := m[k]
	if !had {
		return
	}
	if j.on {
		j.undo = append(j.undo, func() { m[k] = old })
	}
	delete(m, k)
}

// push is *l = append(*l, v) that can be taken back.
func push[T any](j *journal, l *[]T, v T) {
	if j.on {
		n, none := len(*l), *l == nil
		j.undo = append(j.undo, func() {
			if *l = (*l)[:n]; none {
				*l = nil // an empty list is another thing than none, and is saved as that
			}
		})
	}
	*l = append(*l, v)
}

// enlist appends v to l and notes its place in *pos.
func enlist[T any](j *journal, l *[]T, v T, pos *uint32) {
	set(j, pos, uint32(len(*l)))
	push(j, l, v)
}

// delist takes the element at *pos out of l: the last one takes its place, so
// that leaving costs the same whatever the length. posOf finds the note of
// place of an element.
func delist[T any](j *journal, l *[]T, pos *uint32, posOf func(T) *uint32) {
	at, last := *pos, uint32(len(*l)-1)
	gone, moved := (*l)[at], (*l)[last]
	place := posOf(moved)
	(*l)[at] = moved
	*place = at
	*l = (*l)[:last]
	if j.on {
		j.undo = append(j.undo, func() {
			*l = append(*l, moved)
			*place = last
			(*l)[at] = gone
			*pos = at
		})
	}
}

// arena holds values at addresses that never move, in pages, so that a journal
// may point into it and the garbage collector sees few objects. Index 0 is
// never given out: it means "none".
type arena[T any] struct {
	pages [][]T
	n     uint32
}

const arenaPage = 512

func (a *arena[T]) at(i uint32) *T { return &a.pages[i/arenaPage][i%arenaPage] }

// add makes a zero value and returns its index.
func (a *arena[T]) add(j *journal) (uint32, *T) {
	if a.n == 0 {
		a.n = 1
	}
	i := a.n
	if int(i/arenaPage) == len(a.pages) {
		a.pages = append(a.pages, make([]T, arenaPage))
	}
	a.n++
	p := a.at(i)
	if j.on {
		j.undo = append(j.undo, func() {
			var zero T
			*p = zero
			a.n--
		})
	}
	return i, p
}

// len is the number of values ever made.
func (a *arena[T]) len() int {
	if a.n == 0 {
		return 0
	}
	return int(a.n - 1)
}
