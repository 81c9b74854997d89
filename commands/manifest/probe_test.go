package manifest

import (
	"errors"
	"fmt"
	"testing"
)

func TestProbe(t *testing.T) {
	in := []string{
		"", " \n\n", "# nothing\n", "---\n", "null\n", "~", "{}", "[]", "text", "12",
		"\xff\xfem\x00", "a\x00b", "mesh: h\xffme", "mesh: home\nmesh: away\n", "nodez: [a]\n", "node: [a]\n", "Nodes: [a]\n", "nonsense: 1\n", "provider: x\n", "requires: {}\n", "scope: node",
		"mesh: home\n---\nmesh: away\n", "mesh: home\n---\n", "mesh: home\n...\nnodes: [a]\n", "%YAML 1.2\n---\nmesh: home\n", "%TAG ! x\n---\nmesh: home\n", "mesh: home\n...\n", "---\nmesh: home\n",
		"nodes:\n\t- alpha\n", "nodes:\n  \t- alpha\n", "nodes: [alpha, beta\n", "nodes: {alpha\n", "mesh: \"home\n", "mesh: 'home\n", "mesh: @home\n", "mesh: a: b\n", "mesh: a\n  nodes: [b]\n", "- mesh: home\n", "mesh home\n", "mesh: home\nnod",
		"nodes: alpha\n", "nodes: {alpha: {}}\n", "nodes: [alpha, alpha]\n", "nodes: [Alpha, 'be ta', 1, true, all, '', ~, [x], -x]\n", "nodes:\n", "nodes: []\n", "providers: []\n", "providers:\n  x:\n", "mesh: 12\n", "mesh: \"\"\n", "mesh: [a]\n",
		"provisions:\n  pg: node\n", "provisions:\n  pg: {scope: nod}\n", "provisions:\n  pg: {}\n", "provisions:\n  pg: {scope: node, credentials: ''}\n", "provisions:\n  pg: {scope: node, credentials: manged}\n", "provisions:\n  pg: {scope: node, node: alpha}\n", "provisions:\n  PG: {scope: node}\n",
		"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: 16.10}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: 14}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: latest}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: ''}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: ~}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', version: }\n",
		"providers:\n  a: {provision: pg, node: n, endpoint: 'postgres://u:hunter22@h:1/x'}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'u@h:1'}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1?password=hunter22'}\n", "providers:\n  a: {provision: pg, node: n, endpoint: h}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:99999'}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 5432}\n",
		"providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', password: hunter22}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', features: pgvector}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', features: [B, b, b, 1, '', ~]}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', cordoned: yes}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', cordoned: ''}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', cordoned: 1}\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', scope: node}\n", "providers:\n  a: {node: n, endpont: 'h:1'}\n",
		"defaults:\n  - {provision: oidc, provider: a}\n  - {provision: oidc, provider: b, node: n}\n  - {provision: oidc, provider: c}\n", "defaults:\n  - {provision: oidc, provider: b, node: n}\n  - {provision: oidc, provider: c, node: n}\n", "defaults: {oidc: a}\n", "defaults: [oidc]\n", "defaults:\n  - provision: oidc\n",
		"modules:\n  m:\n    requires:\n      db: {provision: pg, optional: ''}\n", "modules:\n  m:\n    requires:\n      db: {provision: pg, optional: }\n", "modules:\n  m:\n    requires:\n      db: {provision: pg, optional: ~}\n", "modules:\n  m:\n    requires:\n      db: {provision: pg, optional: \"yes\"}\n", "modules:\n  m:\n    requires:\n      db: {provision: pg, optional: \"true\"}\n", "modules:\n  m:\n    requires:\n      db: {provision: pg, version: >=14}\n", "modules:\n  m:\n    requires:\n      db: {provision: pg, version: '>>14'}\n", "modules:\n  m:\n    requires:\n      db: 'pg:'\n", "modules:\n  m:\n    requires:\n      db: 'pg:new'\n", "modules:\n  m:\n    requires:\n      db: 'PG:14'\n", "modules:\n  m:\n    requires:\n      db: ''\n", "modules:\n  m:\n    requires:\n      db: [pg]\n", "modules:\n  m:\n    requires: [db]\n", "modules:\n  m:\n    provision: pg\n", "modules:\n  m:\n    requires: {db: pg}\n    embeds: {db: {provision: pg, because: fork}}\n", "modules:\n  m:\n    embeds: {db: {provision: pg, because: 'of course', replaceable: no}}\n", "modules:\n  m:\n    embeds: {db: {provision: pg}}\n", "modules:\n  m:\n    embeds: {db: {provision: pg, because: fork, needs: {provision: pg}, file: x, composition: {file: a}}}\n", "modules:\n  m:\n    embeds: {db: {provision: pg, because: fork, replaceable: false, provider: x}}\n", "modules:\n  m:\n    requires: {db: {provision: pg, version: !=14}}\n",
		"assignments:\n  w: {node: n, provider: pg-a}\n", "assignments:\n  w: {}\n", "assignments:\n  w: {node: n, bind: []}\n", "assignments:\n  w: {node: n, bind: {db: }}\n", "assignments:\n  w: {node: n, bind: {db: embedded}}\n", "assignments:\n  w: {node: n, bind: {db: a, db: b}}\n", "assignments:\n  w: {node: n, module: ''}\n",
		"overrides:\n  - {slot: w/db, provider: p, reason: x}\n  - {slot: w/db, provider: q, reason: y}\n", "overrides:\n  - {slot: w, provider: p, reason: x}\n", "overrides:\n  - {slot: w/D, provider: p, reason: x}\n", "overrides:\n  - {slot: w/db, provider: p}\n", "overrides:\n  - {slot: w/db, provider: p, reason: ' '}\n", "overrides:\n  - {slot: w/db, provider: p, reason: 'password=hunter22'}\n",
		"mesh: *a\n", "mesh: &a [*a]\n", "providers:\n  a: &a {provision: pg, node: n, endpoint: 'h:1'}\n  b: {<<: *a, node: m}\n  c: {<<: x}\n", "1: x\ntrue: x\n~: x\n", "? [a]\n: b\n", "mesh: !foo home\n", "mesh: !!str 12\n", "nodes: !!set [a]\n",
		"password=hunter22: x\n", "nodes: ['postgres://u:hunter22@h']\n", "mesh: home\n nodes: [a]\n", "providers:\n  a: {provision: pg, node: n, endpoint: 'h:1', : x}\n", "nodes: [\"\\u0001\"]\n",
		"modules: {m: {requires: {db: {provision: pg, features: [], version: \"\"}}}}", "nodes: [a b]\n", "nodes: [a,,b]\n", "nodes:\n- a\n- \n- b\n",
	}
	for _, s := range in {
		m, err := Decode("f", []byte(s))
		if err == nil {
			fmt.Printf("%q\n   OK %+v\n", s, *m)
			continue
		}
		var es Errors
		errors.As(err, &es)
		fmt.Printf("%q\n", s)
		for _, e := range es {
			fmt.Printf("   [%s] %s | why %q fix %q sug %q\n", e.Code, e.Error(), e.Why, e.Fix, e.Suggest)
		}
	}
}
