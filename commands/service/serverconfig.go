package service

import (
	"fmt"
	"strings"

	"bindery/ledger"
)

// Boundary is what a NATS server that is not bindery's own must be told, so that a
// granted key reaches the service and nothing else: the ledger is kept in an account
// that only the serving processes enter, and each granted key has one of its own.
type Boundary struct {
	Mesh    string
	Account string   // the ledger's
	Writers []string // keys of the serving processes: all rights in that account
	Answers []string // keys of their connections that answer: ResponderUser
	Keys    []string // granted keys
}

// Config is the boundary as a server's configuration has it: the block "accounts"
// (docs.nats.io, "Accounts").
func (b Boundary) Config() string {
	var out strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&out, format+"\n", a...) }
	p("# bindery: mesh %s. Made by bindery access permissions; load it again after each grant and revocation.", b.Mesh)
	p("accounts {")
	p("  %s {", b.Account)
	p("    jetstream: enabled")
	p("    users: [")
	for _, key := range b.Writers {
		p("      { nkey: %s }", key)
	}
	for _, key := range b.Answers {
		u := ResponderUser(key)
		p("      { nkey: %s, permissions: { publish: [%s], subscribe: [%s] } }", key, listed(u.Publish), listed(u.Subscribe))
	}
	p("    ]")
	p("    exports: [")
	guests := b.guests()
	for _, g := range guests {
		p("      { stream: %q, accounts: [%s] }", g.Hears, g.Key)
	}
	p("    ]")
	p("    imports: [")
	for _, g := range guests {
		for _, c := range g.Sends {
			p("      { stream: { account: %s, subject: %q }, to: %q }", g.Key, c.From, c.To)
		}
	}
	p("    ]")
	p("  }")
	for i := range guests {
		out.WriteString(b.account(&guests[i]))
	}
	p("}")
	return out.String()
}

// account is the account of one granted key.
func (b Boundary) account(g *ledger.Guest) string {
	var out strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&out, format+"\n", a...) }
	from := sent(g)
	p("  %s {", g.Key)
	p("    users: [ { nkey: %s, permissions: { publish: [%s], subscribe: [%q] } } ]", g.Key, listed(from), g.Hears)
	p("    exports: [")
	for _, subject := range from {
		p("      { stream: %q, accounts: [%s] }", subject, b.Account)
	}
	p("    ]")
	p("    imports: [ { stream: { account: %s, subject: %q } } ]", b.Account, g.Hears)
	p("    limits: { max_connections: %d, max_subscriptions: %d }", ledger.GuestConnections, ledger.GuestSubscriptions)
	p("  }")
	return out.String()
}

// Parts are the pieces of Config for the keys alone, to be added by hand to one that
// is there.
func (b Boundary) Parts() string {
	var out strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&out, format+"\n", a...) }
	for _, g := range b.guests() {
		p("# into exports of the account %s", b.Account)
		p("      { stream: %q, accounts: [%s] }", g.Hears, g.Key)
		p("# into imports of the account %s", b.Account)
		for _, c := range g.Sends {
			p("      { stream: { account: %s, subject: %q }, to: %q }", g.Key, c.From, c.To)
		}
		p("# into accounts")
		out.WriteString(b.account(&g))
	}
	return out.String()
}

// sent are the subjects that a guest publishes to.
func sent(g *ledger.Guest) (from []string) {
	for _, c := range g.Sends {
		from = append(from, c.From)
	}
	return from
}

// NSC is the boundary as commands for nsc, where accounts are JWTs that an operator
// signs (docs.nats.io, "nsc").
func (b Boundary) NSC() string {
	var out strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&out, format+"\n", a...) }
	p("# bindery: mesh %s. Made by bindery access permissions; the commands of a key are run once, after its grant.", b.Mesh)
	p("nsc add account --name %s", b.Account)
	p("nsc edit account --name %s --js-disk-storage -1 --js-mem-storage -1 --js-streams -1 --js-consumer -1", b.Account)
	for i, key := range b.Writers {
		p("nsc add user --account %s --name writer-%d --public-key %s", b.Account, i+1, key)
	}
	for i, key := range b.Answers {
		u := ResponderUser(key)
		p("nsc add user --account %s --name answers-%d --public-key %s --allow-pub '%s' --allow-sub '%s'", b.Account, i+1, key,
			strings.Join(u.Publish, ","), strings.Join(u.Subscribe, ","))
	}
	for _, g := range b.guests() {
		from := sent(&g)
		p("nsc add account --name %s", g.Key)
		p("nsc edit account --name %s --conns %d --subscriptions %d", g.Key, ledger.GuestConnections, ledger.GuestSubscriptions)
		p("nsc add user --account %s --name %s --public-key %s --allow-pub '%s' --allow-sub '%s'", g.Key, g.Key, g.Key, strings.Join(from, ","), g.Hears)
		b.crossing(p, b.Account, g.Key, "answers", g.Hears, g.Hears)
		for i, c := range g.Sends {
			b.crossing(p, g.Key, b.Account, fmt.Sprintf("requests-%d", i+1), c.From, c.To)
		}
	}
	p("nsc push --all")
	return out.String()
}

// crossing prints how one account exports a stream to one other, and to nobody else:
// a public export could be imported by every account of the operator.
func (b Boundary) crossing(p func(string, ...any), from, to, name, subject, local string) {
	file := to + "-" + name + ".jwt"
	p("nsc add export --account %s --private --name '%s %s' --subject '%s'", from, to, name, subject)
	p("nsc generate activation --account %s --target-account \"$(nsc describe account --name %s --json --field sub | tr -d '\"')\" --subject '%s' --output-file %s", from, to, subject, file)
	p("nsc add import --account %s --token %s --name '%s %s' --local-subject '%s'", to, file, from, name, local)
}

func (b Boundary) guests() []ledger.Guest {
	out := make([]ledger.Guest, len(b.Keys))
	for i, key := range b.Keys {
		out[i] = GuestOf(b.Mesh, key)
	}
	return out
}

func listed(subjects []string) string {
	quoted := make([]string, len(subjects))
	for i, s := range subjects {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(quoted, ", ")
}
