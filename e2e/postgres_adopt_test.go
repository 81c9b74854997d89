package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const leaked = "an-old-and-leaked-one"

// handMade makes a login as somebody did years ago, with data of its own.
func handMade(t testing.TB, p *postgres, user, database string) {
	t.Helper()
	p.exec(t, "postgres", fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", user, leaked))
	p.exec(t, "postgres", fmt.Sprintf("CREATE DATABASE %s OWNER %s", database, user))
	p.exec(t, database, fmt.Sprintf("SET ROLE %s; CREATE TABLE pages (title text); INSERT INTO pages VALUES ('years of work')", user))
}

// letsIn reports whether a server takes a login.
func letsIn(p *postgres, user, database, password string) bool {
	conn, err := p.connect(user, database, password)
	if err != nil {
		return false
	}
	_ = conn.Close(context.Background())
	return true
}

func (w *world) credentials(t testing.TB, assignment string) []credential {
	t.Helper()
	var l struct{ Items []credential }
	if err := json.Unmarshal([]byte(w.must(t, "credential", "list", "--assignment", assignment, "--all", "-o", "json")), &l); err != nil {
		t.Fatal(err)
	}
	return l.Items
}

// changed is the sequence that a consumer of a slot acknowledges.
func (w *world) changed(t testing.TB, slot string) string {
	t.Helper()
	var v struct {
		Seq uint64 `json:"changed_seq"`
	}
	if err := json.Unmarshal([]byte(w.must(t, "binding", "show", slot, "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(v.Seq)
}

// credential is one as credential list tells it.
type credential struct {
	Generation uint64
	State      string
	User       string
	ByHand     bool `json:"by_hand"`
	Operator   bool
	Error      string
}

// A leaked password of a login that was made by hand is rotated away: it is refused
// afterwards, and the data is where the consumer finds it under its new login. So is
// whatever follows that one.
func TestPostgresAdoptedLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pg["pg-alpha"]
	handMade(t, p, "wiki_prod", "wiki_data")
	w.must(t, "credential", "adopt", "wiki/db", "--user", "wiki_prod", "--database", "wiki_data", "--secret-ref", "file:/srv/wiki/.env")
	w.must(t, "binding", "applied", "wiki/db", "--at", w.changed(t, "wiki/db"))
	for _, n := range w.nodes {
		n.start(t)
	}
	if !letsIn(p, "wiki_prod", "wiki_data", leaked) {
		t.Fatal("the old login is not let in before")
	}
	wiki := w.consumer("wiki")
	for round := range 2 {
		w.must(t, "rotation", "start", "--binding", "wiki/db", "--urgent", "--reason", "its password was in a log")
		w.waits(t, "rotation", "wait", "wiki/db")
		if letsIn(p, "wiki_prod", "wiki_data", leaked) {
			t.Fatal("the leaked password logs in still")
		}
		s, err := wiki.read()
		if err != nil {
			t.Fatal(err)
		}
		if s.database != "wiki_data" {
			t.Fatalf("round %d: the consumer was given the database %s", round, s.database)
		}
		conn, err := p.connect(s.username, s.database, s.password)
		if err != nil {
			t.Fatal(err)
		}
		var title string
		err = conn.QueryRow(context.Background(), "SELECT min(title) FROM pages").Scan(&title)
		if err == nil {
			// It may do what the old one could, and what it makes is there for the next.
			_, err = conn.Exec(context.Background(), fmt.Sprintf("ALTER TABLE pages ADD COLUMN c%d int; CREATE TABLE made_in_%d (n int)", round, round))
		}
		_ = conn.Close(context.Background())
		if err != nil || title != "years of work" {
			t.Fatalf("round %d: %q, %v", round, title, err)
		}
	}
	if got := p.list(t, "wiki_data", "SELECT DISTINCT tableowner::text FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'marker'"); !slices.Equal(got, []string{"wiki_prod"}) {
		t.Errorf("the tables belong to %v", got)
	}
	for _, c := range w.credentials(t, "wiki") {
		if c.ByHand && c.State != "revoked" {
			t.Errorf("the hand-made one is %s", c.State)
		}
	}
}

// Kind: a login that nobody but a person made is "revoked" by a hook that does not know
// it, and its consumer is given an empty database. Nobody said which login it is: nothing
// is said to be over, and nothing is made in its place.
func TestPostgresUnknownLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pg["pg-alpha"]
	handMade(t, p, "wiki_prod", "wiki_data")
	before := p.list(t, "postgres", "SELECT datname FROM pg_database ORDER BY 1")
	asked := w.credentials(t, "wiki")[0].Generation
	w.must(t, "credential", "issued", "wiki/db", "--generation", fmt.Sprint(asked), "--secret-ref", "file:/srv/wiki/.env")
	w.must(t, "binding", "applied", "wiki/db", "--at", w.changed(t, "wiki/db"))
	w.nodes["alpha"].start(t)
	w.must(t, "rotation", "start", "--binding", "wiki/db", "--urgent", "--reason", "its password was in a log")
	eventually(t, "it is an operator's", func() bool {
		show := w.must(t, "rotation", "show", "wiki/db")
		return strings.Contains(show, "fix: bindery credential adopt wiki/db --generation "+fmt.Sprint(asked)+" --user USER") && strings.Contains(show, "made by hand")
	})
	for _, c := range w.credentials(t, "wiki") {
		if c.State == "revoked" || c.State == "issued" {
			t.Errorf("generation %d is %s", c.Generation, c.State)
		}
	}
	if !letsIn(p, "wiki_prod", "wiki_data", leaked) {
		t.Error("the login is out, and nobody said so")
	}
	if got := slices.DeleteFunc(p.list(t, "postgres", "SELECT datname FROM pg_database ORDER BY 1"), func(d string) bool { return strings.HasPrefix(d, "grafana") }); !slices.Equal(got, before) {
		t.Errorf("there are the databases %v, before %v", got, before)
	}

	// The way on is typed as it is shown, and then an agent does it.
	w.must(t, "credential", "adopt", "wiki/db", "--generation", fmt.Sprint(asked), "--user", "wiki_prod", "--database", "wiki_data")
	w.waits(t, "rotation", "wait", "wiki/db")
	if letsIn(p, "wiki_prod", "wiki_data", leaked) {
		t.Error("the leaked password logs in still")
	}
}
