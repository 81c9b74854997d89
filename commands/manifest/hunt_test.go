package manifest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestHunt(t *testing.T) {
	pats := []string{}
	for c := byte(9); c < 127; c++ {
		pats = append(pats, string([]byte{c}))
	}
	for _, s := range []string{"a: ", "a:\n", "- ", "a\n", "\"a\" ", "''", "\"\\", "[]", "{}", "{a: ", "[a,", "? ", "&a ", "*a ", "!a ", "|\n ", "|\n", "|\n  x\n", "# ", "#\n", "a #\n", " \n", "\t\n", "---\n", "...\n", "%a\n", "a: b\n", "a: 'b'\n", "- - ", "a\n ", "\r\n", "<<: ", "<< ", "a: |\n  x\n\n\n\n", "a: >\n\n", "é", "a:\n- ", "<a", "<<a", "a\t", "\ta", "a:\t", "{a:", "a:b ", "\\", "\\\n", "#\\\n", "x#", " #", "'\n", "\"\n", "a\n\n"} {
		pats = append(pats, s)
	}
	for _, pre := range []string{"", "a: ", "a: |\n  ", "a: |+\n  ", "a: >\n  ", "a: \"", "a: '", "a: b ", "- ", "{a: ", "[", "{", "# "} {
		for _, p := range pats {
			src := pre + strings.Repeat(p, (MaxFile-20)/len(p))
			t0 := time.Now()
			done := make(chan error, 1)
			go func() { _, err := Decode("f", []byte(src)); done <- err }()
			select {
			case err := <-done:
				if d := time.Since(t0); d > 1500*time.Millisecond {
					s := fmt.Sprint(err)
					if len(s) > 80 {
						s = s[:80]
					}
					fmt.Printf("%q %q %v %s\n", pre, p, d, s)
				}
			case <-time.After(8 * time.Second):
				fmt.Printf("%q %q HANG\n", pre, p)
				t.Fail()
				if err := <-done; err != nil {
				}
				fmt.Println("  ", time.Since(t0))
			}
		}
	}
}
