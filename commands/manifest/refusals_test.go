package manifest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// refusals are the inputs of testdata/refusals.txt, in its order. Those that
// are accepted stand beside what they are easily taken for.
var refusals = []string{
	"",
	" \n\n",
	"# nothing\n",
	"---\n",
	"null\n",
	"~",
	"{}",
	"[]",
	"text",
	"12",
	"\xff\xfem\x00",
	"a\x00b",
	"mesh: h\xffme",
	"mesh: home\nmesh: away\n",
	"nodez: [a]\n",
	"node: [a]\n",
	"Nodes: [a]\n",
	"nonsense: 1\n",
	"provider: x\n",
	"requires: {}\n",
	"scope: node",
	"mesh: home\n---\nmesh: away\n",
	"mesh: home\n---\n",
	"mesh: home\n...\nnodes: [a]\n",
	"%YAML 1.2\n---\nmesh: home\n",
	"%TAG ! x\n---\nmesh: home\n",
	"mesh: home\n...\n",
	"---\nmesh: home\n",
	"nodes:\n\t- alpha\n",
	"nodes:\n  \t- alpha\n",
	"nodes: [alpha, beta\n",
	"nodes: {alpha\n",
	"mesh: \"home\n",
	"mesh: 'home\n",
	"mesh: @home\n",
	"mesh: a: b\n",
	"mesh: a\n  nodes: [b]\n",
	"- mesh: home\n",
	"mesh home\n",
	"mesh: home\nnod",
	"nodes: alpha\n",
	"nodes: {alpha: {}}\n",
	"nodes: [alpha, alpha]\n",
	"nodes: [Alpha, 'be ta', 1, true, all, '', ~, [x], -x]\n",
	"nodes:\n",
	"nodes: []\n",
	"providers: []\n",
	"providers:\n  x:\n",
	"mesh: 12\n",
	"mesh: \"\"\n",
	"mesh: [a]\n",
	"provisions:\n  pg: node\n",
	"provisions:\n  pg: {scope: nod}\n",
	"provisions:\n  pg: {}\n",
	"provisions:\n  pg: {scope: node, credentials: ''}\n",
	"provisions:\n  pg: {scope: node, credentials: manged}\n",
	"provisions:\n  pg: {scope: node, node: alpha}\n",
	"provisions:\n  PG: {scope: node}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: 16.10}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: 14}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: latest}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: ''}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: ~}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: }\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'postgres://u:hunter22@h:1/x'}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'u@h:1'}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1?password=hunter22'}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: h}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:99999'}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 5432}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', password: hunter22}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', features: pgvector}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', features: [B, b, b, 1, '', ~]}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', cordoned: yes}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', cordoned: ''}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', cordoned: 1}\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', scope: node}\n",
	"providers:\n  a: {node: n, endpont: 'h:1'}\n",
	"defaults:\n  - {provision: oidc, provider: a}\n  - {provision: oidc, provider: b, node: n}\n  - {provision: oidc, provider: c}\n",
	"defaults:\n  - {provision: oidc, provider: b, node: n}\n  - {provision: oidc, provider: c, node: n}\n",
	"defaults: {oidc: a}\n",
	"defaults: [oidc]\n",
	"defaults:\n  - provision: oidc\n",
	"modules:\n  m:\n    requires:\n      db: {provision: pg, optional: ''}\n",
	"modules:\n  m:\n    requires:\n      db: {provision: pg, optional: }\n",
	"modules:\n  m:\n    requires:\n      db: {provision: pg, optional: ~}\n",
	"modules:\n  m:\n    requires:\n      db: {provision: pg, optional: \"yes\"}\n",
	"modules:\n  m:\n    requires:\n      db: {provision: pg, optional: \"true\"}\n",
	"modules:\n  m:\n    requires:\n      db: {provision: pg, version: >=14}\n",
	"modules:\n  m:\n    requires:\n      db: {provision: pg, version: '>>14'}\n",
	"modules:\n  m:\n    requires:\n      db: 'pg:'\n",
	"modules:\n  m:\n    requires:\n      db: 'pg:new'\n",
	"modules:\n  m:\n    requires:\n      db: 'PG:14'\n",
	"modules:\n  m:\n    requires:\n      db: ''\n",
	"modules:\n  m:\n    requires:\n      db: [pg]\n",
	"modules:\n  m:\n    requires: [db]\n",
	"modules:\n  m:\n    provision: pg\n",
	"modules:\n  m:\n    requires: {db: pg}\n    embeds: {db: {provision: pg, because: fork}}\n",
	"modules:\n  m:\n    embeds: {db: {provision: pg, because: 'of course', replaceable: no}}\n",
	"modules:\n  m:\n    embeds: {db: {provision: pg}}\n",
	"modules:\n  m:\n    embeds: {db: {provision: pg, because: fork, needs: {provision: pg}, file: x, composition: {file: a}}}\n",
	"modules:\n  m:\n    embeds: {db: {provision: pg, because: fork, replaceable: false, provider: x}}\n",
	"modules:\n  m:\n    requires: {db: {provision: pg, version: !=14}}\n",
	"assignments:\n  w: {node: n, provider: pg-a}\n",
	"assignments:\n  w: {}\n",
	"assignments:\n  w: {node: n, bind: []}\n",
	"assignments:\n  w: {node: n, bind: {db: }}\n",
	"assignments:\n  w: {node: n, bind: {db: embedded}}\n",
	"assignments:\n  w: {node: n, bind: {db: a, db: b}}\n",
	"assignments:\n  w: {node: n, module: ''}\n",
	"overrides:\n  - {slot: w/db, provider: p, reason: x}\n  - {slot: w/db, provider: q, reason: y}\n",
	"overrides:\n  - {slot: w, provider: p, reason: x}\n",
	"overrides:\n  - {slot: w/D, provider: p, reason: x}\n",
	"overrides:\n  - {slot: w/db, provider: p}\n",
	"overrides:\n  - {slot: w/db, provider: p, reason: ' '}\n",
	"overrides:\n  - {slot: w/db, provider: p, reason: 'password=hunter22'}\n",
	"mesh: *a\n",
	"mesh: &a [*a]\n",
	"providers:\n  a: &a {provision: pg, node: n, endpoint: 'h:1'}\n  b: {<<: *a, node: m}\n  c: {<<: x}\n",
	"1: x\ntrue: x\n~: x\n",
	"? [a]\n: b\n",
	"mesh: !foo home\n",
	"mesh: !!str 12\n",
	"nodes: !!set [a]\n",
	"password=hunter22: x\n",
	"nodes: ['postgres://u:hunter22@h']\n",
	"mesh: home\n nodes: [a]\n",
	"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', : x}\n",
	"nodes: [\"\\u0001\"]\n",
	"modules: {m: {requires: {db: {provision: pg, features: [], version: \"\"}}}}",
	"nodes: [a b]\n",
	"nodes: [a,,b]\n",
	"nodes:\n- a\n- \n- b\n",
	"modules:\n  m:\n    requires:\n      db: {provision: pg, version: 14}\n",
	"modules:\n  m:\n    embeds:\n      db: {provision: pg, because: fork, version: 13.10}\n",
	"modules:\n  m:\n    embeds:\n      db: {provision: pg, because: fork, replaceable: ''}\n",
	"modules:\n  m:\n    embeds:\n      db: {provision: pg, because: fork, replaceable: }\n",
	"modules:\n  m:\n    embeds:\n      db: {provision: pg, because: fork, needs: ~}\n",
	"modules:\n  m:\n    embeds:\n      db: {provision: pg, because: fork, replacable: true}\n",
	"modules:\n  m:\n    requires:\n      d_b: pg\n",
	"modules:\n  m:\n    requires:\n      db: {provision: pg, because: fork}\n",
	"modules:\n  m:\n    requires:\n      db: {provision: pg, node: alpha}\n",
	"assignments:\n  w: {node: n, requires: {}}\n",
	"assignments:\n  w: {node: n, nod: m}\n",
	"assignments:\n  W: {node: n}\n",
	"assignments:\n  default: {node: n}\n",
	"assignments:\n  w: {node: n, bind: {db: 12, D: p}}\n",
	"overrides:\n  - {slot: w/db/x, provider: p, reason: x}\n",
	"overrides:\n  - {slot: w/db, provider: p, reason: 12}\n",
	"overrides: {w/db: p}\n",
	"defaults:\n  - {provision: oidc, provider: a, scope: mesh}\n",
	"defaults:\n  - {provision: oidc, provider: a, node: ''}\n",
	"provisions:\n  pg: {scope: node, endpoint: 'h:1'}\n",
	"provisions:\n  pg: {scope: node}\n  pg: {scope: mesh}\n",
	"mesh: home\r\nnodez: [a]\r\n",
	"# a comment\n\nmesh: \"two\n  lines\"\nnodez: [ä, b]\n",
	"{\n\t\"mesh\": \"home\",\n\t\"nodes\": [\"A\"]\n}\n",
	"{\"nodes\": [\"a\"], \"nodez\": 1}",
	"\ufeffnodez: 1\n",
	"mesh: |\n  a\n  b\n",
	"mesh: \"\\q\"\n",
	"<<: {mesh: home}\nnodes: [a]\n<<: {mesh: x}\n",
	"providers:\n  a: &a {provision: PG, node: n, endpoint: 'h:1'}\n  b: *a\n",
	"providers: {a: {provision: pg, node: n, endpoint: \"h:1\", features: {x: y}}}\n",
	"nodes: [a\nmesh: b\n",
	"modules:\n  m:\n    requires:\n      db:\n        provision: pg\n       version: x\n",
	"modules:\n  m:\n   requires:\n      db: pg\n  n:\n",
	"nodes: [a]]\n",
	"nodes: - a\n",
	"mesh: home # x\nnodes: [a] #\nx: y",
	"nodes: [A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V]\n",
}

// TestRefusals holds every error, word by word, against testdata/refusals.txt.
func TestRefusals(t *testing.T) {
	var b bytes.Buffer
	for _, in := range refusals {
		_, err := Decode("f", []byte(in))
		writeErrors(&b, fmt.Sprintf("%q", in), err)
		if strings.Contains(fmt.Sprint(err), "hunter22") {
			t.Errorf("%q: a secret is in the message", in)
		}
	}
	golden(t, "testdata/refusals.txt", b.Bytes())
}

func writeErrors(b *bytes.Buffer, in string, err error) {
	fmt.Fprintf(b, "%s\n", in)
	if err == nil {
		fmt.Fprintf(b, "\taccepted\n\n")
		return
	}
	for _, e := range err.(Errors) {
		fmt.Fprintf(b, "\t%s [%s]\n", e.Error(), e.Code)
		for _, l := range [][2]string{{"why", e.Why}, {"fix", e.Write + e.Fix.String()}, {"suggest", strings.Join(e.Suggest, " ")}} {
			if l[1] != "" {
				fmt.Fprintf(b, "\t\t%s: %s\n", l[0], l[1])
			}
		}
	}
	b.WriteByte('\n')
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n\n"), strings.Split(string(got), "\n\n")); diff != "" {
		t.Errorf("not as in %s (go test -update writes it):\n%s", file, diff)
	}
}
