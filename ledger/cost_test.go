package ledger

import (
	"testing"
	"time"
)

func breakEven(c *costs) int {
	for n := 2; n < 1000; n++ {
		if c.batch.at(n) < c.single.at(n) {
			return n
		}
	}
	return 1000
}

func TestCostsStart(t *testing.T) {
	c := newCosts()
	if n := breakEven(c); n < 12 || n > 16 {
		t.Errorf("before anything is measured they break even at %d, want about 14", n)
	}
	if c.useBatch(1) {
		t.Error("a batch for one event")
	}
}

// simulate feeds measurements of a store on which a publish costs single and a
// batch fixed and each a message, with groups of the sizes given.
func simulate(c *costs, rounds int, sizes []int, single, fixed, each time.Duration) (batches, singles int) {
	for i := range rounds {
		n := sizes[i%len(sizes)]
		if c.useBatch(n) {
			c.learn(true, n, fixed+time.Duration(n)*each)
			batches++
		} else {
			c.learn(false, n, time.Duration(n)*single)
			singles++
		}
	}
	return
}

func TestCostsLearn(t *testing.T) {
	const us = time.Microsecond
	tests := []struct {
		name                string
		sizes               []int
		single, fixed, each time.Duration
		low, high           int
	}{
		{"as guessed", []int{1, 4, 40, 200}, 140 * us, 1900 * us, 7 * us, 11, 17},
		{"slow fsync", []int{1, 3, 8, 30}, 8000 * us, 20_000 * us, 10 * us, 2, 5},
		{"fast disk", []int{1, 10, 50, 60}, 20 * us, 1900 * us, 7 * us, 100, 200},
		{"replicated, batches cheap", []int{1, 2, 5, 20}, 300 * us, 700 * us, 5 * us, 2, 4},
		{"one size only", []int{30}, 140 * us, 1900 * us, 7 * us, 8, 22},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newCosts()
			simulate(c, 5000, test.sizes, test.single, test.fixed, test.each)
			if n := breakEven(c); n < test.low || n > test.high {
				t.Errorf("they break even at %d, want %d to %d", n, test.low, test.high)
			}
		})
	}
}

// What was dearer is tried now and then, so that a change is noticed; what is
// hopeless is not.
func TestCostsProbe(t *testing.T) {
	const us = time.Microsecond
	c := newCosts()
	_, singles := simulate(c, 1000, []int{20}, 140*us, 1900*us, 7*us)
	if singles < 5 || singles > 20 {
		t.Errorf("%d probes in 1000 decisions, want about 10", singles)
	}
	simulate(c, 5000, []int{20}, 20*us, 1900*us, 7*us)
	if c.batch.at(20) < c.single.at(20) {
		t.Error("the disk has become faster and it was not noticed")
	}
	c = newCosts()
	if _, singles := simulate(c, 1000, []int{900}, 140*us, 1900*us, 7*us); singles != 0 {
		t.Errorf("%d probes of what costs 16 times as much", singles)
	}
}
