package projections

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What is done under the journal can be taken back to any mark, in any order of
// deeds; a place noted in a list is always the element's own.
func TestJournal(t *testing.T) {
	type item struct{ pos uint32 }
	rapid.Check(t, func(t *rapid.T) {
		j := &journal{on: true}
		var a arena[item]
		var list []uint32
		m := map[int]int{}
		n := 0
		type picture struct {
			mark, n, made int
			list          []uint32
			m             map[int]int
		}
		shoot := func() picture {
			p := picture{mark: len(j.undo), n: n, made: a.len(), list: slices.Clone(list), m: map[int]int{}}
			for k, v := range m {
				p.m[k] = v
			}
			return p
		}
		check := func() {
			for i, e := range list {
				if got := a.at(e).pos; got != uint32(i) {
					t.Fatalf("element %d notes place %d, it is at %d", e, got, i)
				}
			}
		}
		pictures := []picture{shoot()}
		for range rapid.IntRange(0, 60).Draw(t, "deeds") {
			switch rapid.IntRange(0, 5).Draw(t, "deed") {
			case 0, 1:
				i, p := a.add(j)
				enlist(j, &list, i, &p.pos)
			case 2:
				if len(list) > 0 {
					e := list[rapid.IntRange(0, len(list)-1).Draw(t, "which")]
					delist(j, &list, &a.at(e).pos, func(o uint32) *uint32 { return &a.at(o).pos })
				}
			case 3:
				put(j, m, rapid.IntRange(0, 3).Draw(t, "key"), n)
				set(j, &n, n+1)
			case 4:
				drop(j, m, rapid.IntRange(0, 3).Draw(t, "key"))
			case 5:
				pictures = append(pictures, shoot())
			}
			check()
		}
		for i := len(pictures) - 1; i >= 0; i-- {
			want := pictures[i]
			for k := len(j.undo) - 1; k >= want.mark; k-- {
				j.undo[k]()
			}
			j.undo = j.undo[:want.mark]
			got := shoot()
			if got.n != want.n || got.made != want.made || !slices.Equal(got.list, want.list) || len(got.m) != len(want.m) {
				t.Fatalf("taken back to %+v, want %+v", got, want)
			}
			for k, v := range want.m {
				if got.m[k] != v {
					t.Fatalf("key %d is %d, want %d", k, got.m[k], v)
				}
			}
			check()
		}
	})
}
