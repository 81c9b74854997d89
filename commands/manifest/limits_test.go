package manifest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// hostile holds inputs that are refused, each with the code. They are built
// when they are needed: some are 4 MiB.
var hostile = map[string]struct {
	code string
	text func() string
}{
	"too many bytes":      {CodeTooLarge, func() string { return "mesh: home\n" + strings.Repeat("#", MaxFile) }},
	"4 MiB of [":          {CodeTooLarge, func() string { return strings.Repeat("[", MaxFile) }},
	"4 MiB of {":          {CodeTooLarge, func() string { return strings.Repeat("{", MaxFile) }},
	"4 MiB of [ in lines": {CodeTooLarge, func() string { return strings.Repeat("[\n", MaxFile/2) }},
	"101 of [":            {CodeTooLarge, func() string { return "nodes: " + strings.Repeat("[", 101) + strings.Repeat("]", 101) }},
	"4 MiB of dashes":     {CodeTooLarge, func() string { return strings.Repeat("- ", MaxFile/2) }},
	"101 dashes":          {CodeTooLarge, func() string { return strings.Repeat("- ", 101) + "a" }},
	"101 deep in a block": {CodeTooLarge, func() string {
		var b strings.Builder
		for i := range 101 {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String()
	}},
	"4 MiB of <":           {CodeTooLarge, func() string { return strings.Repeat("<", MaxFile) }},
	"4 MiB of &":           {CodeTooLarge, func() string { return strings.Repeat("&", MaxFile) }},
	"4 MiB of quotes":      {CodeTooLarge, func() string { return "mesh: " + strings.Repeat("'", MaxFile-7) }},
	"a 4 MiB quoted text":  {CodeName, func() string { return "mesh: '" + strings.Repeat("x", MaxFile-9) + "'" }},
	"4 MiB of tags":        {CodeTooLarge, func() string { return strings.Repeat("!a\n", MaxFile/3) }},
	"60,000 tags":          {CodeInvalid, func() string { return strings.Repeat("!a\n", 60_000) + "x" }},
	"4 MiB of documents":   {CodeInvalid, func() string { return strings.Repeat("---\na\n", MaxFile/6) }},
	"4 MiB of x":           {CodeInvalid, func() string { return strings.Repeat("x", MaxFile) }},
	"4 MiB of x in lines":  {CodeTooLarge, func() string { return strings.Repeat("x\n", MaxFile/2) }},
	"4 MiB of comments":    {CodeTooLarge, func() string { return strings.Repeat("# x\n", MaxFile/4) }},
	"4 MiB of spaces":      {CodeInvalid, func() string { return strings.Repeat(" ", MaxFile) }},
	"4 MiB of zero":        {CodeInvalid, func() string { return strings.Repeat("\x00", MaxFile) }},
	"a 4 MiB block text":   {CodeName, func() string { return "mesh: |\n" + strings.Repeat(" xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n", MaxFile/32-1) }},
	"4 MiB of quoted tabs": {CodeTooLarge, func() string { return "mesh: \"" + strings.Repeat("a\t", MaxFile/2-6) + "\"" }},
	"4 MiB of markers":     {CodeInvalid, func() string { return "mesh: >\n  " + strings.Repeat("...\n", MaxFile/4-6) }},
	"blank lines": {CodeTooLarge, func() string {
		return "mesh: |\n  x\n" + strings.Repeat("\n", 1<<20)
	}},
	"a 1 MB name":     {CodeName, func() string { return "nodes: [" + strings.Repeat("n", 1_000_000) + "]\n" }},
	"a 1 MB key":      {CodeInvalid, func() string { return strings.Repeat("n", 1_000_000) + ": x\n" }},
	"a 1 MB provider": {CodeName, func() string { return "providers: {" + strings.Repeat("n", 1_000_000) + ": {}}\n" }},
	"100,000 keys": {CodeTooLarge, func() string {
		var b strings.Builder
		for i := range 100_000 {
			fmt.Fprintf(&b, "k%d: v\n", i)
		}
		return b.String()
	}},
	"100,000 keys in a flow": {CodeTooLarge, func() string {
		var b strings.Builder
		b.WriteString("{")
		for i := range 100_000 {
			fmt.Fprintf(&b, "k%d: v, ", i)
		}
		return b.String() + "}"
	}},
	"49,000 keys in a block": {CodeTooLarge, func() string { return keys(49_000) }},
	"9,900 keys in a block":  {CodeInvalid, func() string { return keys(9_900) }},
	"49,000 keys in a flow":  {CodeInvalid, func() string { return "{" + strings.ReplaceAll(keys(49_000), "\n", ",") + "}" }},
	"99,000 bad nodes":       {CodeName, func() string { return "nodes: [" + strings.Repeat("N, ", 99_000) + "]" }},
	"billion laughs": {CodeTooLarge, func() string {
		var b strings.Builder
		b.WriteString("nodes:\n- &l0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n")
		for i := range 9 {
			a := fmt.Sprintf("*l%d", i)
			fmt.Fprintf(&b, "- &l%d [%s]\n", i+1, strings.Join([]string{a, a, a, a, a, a, a, a, a, a}, ", "))
		}
		return b.String()
	}},
	"billion laughs merged": {CodeTooLarge, func() string {
		var b strings.Builder
		b.WriteString("providers:\n  a0: &a0 {provision: pg, node: n, endpoint: 'h:1'}\n")
		for i := range 40 {
			fmt.Fprintf(&b, "  a%d: &a%d\n    <<: [*a%d, *a%d]\n", i+1, i+1, i, i)
		}
		return b.String()
	}},
	"a chain of merges": {CodeTooLarge, func() string {
		var b strings.Builder
		b.WriteString("providers:\n  a0: &a0 {provision: pg, node: n, endpoint: 'h:1'}\n")
		for i := range 200 {
			fmt.Fprintf(&b, "  a%d: &a%d\n    <<: *a%d\n", i+1, i+1, i)
		}
		return b.String()
	}},
	"a cycle": {CodeInvalid, func() string { return "providers: &a\n  x: *a\n" }},
}

func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: v\n", i)
	}
	return b.String()
}

func TestHostile(t *testing.T) {
	for name, c := range hostile {
		t.Run(name, func(t *testing.T) {
			text := c.text()
			if raceEnabled && len(text) > 1<<20 {
				t.Skip("slow with -race")
			}
			start := time.Now()
			m, err := Decode("f", []byte(text))
			took := time.Since(start)
			for range 3 { // a busy machine proves nothing
				if took > time.Second && !raceEnabled {
					start = time.Now()
					_, _ = Decode("f", []byte(text))
					took = min(took, time.Since(start))
				}
			}
			if m != nil || err == nil {
				t.Fatal("was accepted")
			}
			errs := err.(Errors)
			if errs[0].Code != c.code {
				t.Errorf("code %s, want %s: %s", errs[0].Code, c.code, errs[0])
			}
			if len(errs) > MaxErrors {
				t.Errorf("%d errors, want at most %d", len(errs), MaxErrors)
			}
			if n := len(err.Error()); n > MaxErrors*400 {
				t.Errorf("the message is %d bytes long", n)
			}
			if took > time.Second && !raceEnabled {
				t.Errorf("took %v, want less than a second", took)
			}
			t.Log(took, errs[0])
		})
	}
}

// TestLimits accepts what stands at a limit, or just below.
func TestLimits(t *testing.T) {
	var b strings.Builder
	for i := range 9_000 {
		fmt.Fprintf(&b, "  a%d: {module: m, node: n, bind: {db: p}}\n", i)
	}
	texts := map[string]string{
		"90,000 nodes":    "assignments:\n" + b.String(),
		"comments":        "mesh: home\n" + strings.Repeat("# [[[[ {{{{ '''' \"\"\"\" && ** !! %%\n", 60_000),
		"blank lines":     "mesh: home\n" + strings.Repeat("\n", 5_000) + "nodes: [a]\n",
		"long reason":     "overrides:\n- slot: a/b\n  provider: p\n  reason: >-\n" + strings.Repeat("    why not, then\n", 60),
		"aliases":         "nodes: &n [a, b]\nproviders:\n  p: &p {provision: &pg pg, node: a, endpoint: 'h:1', features: &f [x]}\n  q: {<<: *p, provision: *pg, node: b, features: *f}\n",
		"redefined alias": "mesh: &a home\nnodes: [*a, &a x, &b y]\nprovisions: {*a : {scope: node}}\n",
	}
	for name, text := range texts {
		if _, err := Decode("f", []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
