package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

const providerHook = "../docs/postgres/provider/postgres-database"

// handHook runs the provider's hook as the agent does, by hand.
type handHook struct {
	server *postgres
	home   string
}

// newHandHook sets up a home as docs/postgres.md says.
func newHandHook(t testing.TB, p *postgres) *handHook {
	t.Helper()
	h := &handHook{server: p, home: t.TempDir()}
	hookHome(t, h.home, map[string]*postgres{"pg-alpha": p})
	return h
}

// hookHome writes how the hooks log in to servers as administrators, by the names of
// the providers.
func hookHome(t testing.TB, home string, servers map[string]*postgres) {
	t.Helper()
	var services, passwords strings.Builder
	for name, p := range servers {
		fmt.Fprintf(&services, "[%s]\nhost=%s\nport=%d\nuser=bindery\ndbname=postgres\n\n", name, p.dir, p.port)
		fmt.Fprintf(&passwords, "*:%d:*:bindery:%s\n", p.port, adminPassword)
	}
	for name, text := range map[string]string{".pg_service.conf": services.String(), ".pgpass": passwords.String()} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const handBinding = "01M8P0H60DFA7QNAWE6ZPN3185"

// run runs an action for a generation, and returns what it printed.
func (h *handHook) run(t testing.TB, action string, generation int, change map[string]any) (stdout, stderr string, err error) {
	t.Helper()
	in := map[string]any{"action": action, "attempt": 1, "repeated": false, "mesh": "home", "node": "alpha",
		"provider": "pg-alpha", "provision": "postgres-database", "endpoint": h.server.endpoint(), "host": "127.0.0.1", "port": fmt.Sprint(h.server.port),
		"assignment": "wiki", "module": "wiki", "slot": "db", "binding": handBinding, "generation": generation, "tag": "0badcafe",
		"username": roleOf(generation)}
	if action == "issue" {
		in["password"] = passwordOf(generation)
	}
	for k, v := range change {
		in[k] = v
	}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, providerHook)
	cmd.Env = []string{postgresPath(), "HOME=" + h.home, "LANG=C.UTF-8", "BINDERY_ACTION=" + action, "BINDERY_PROVIDER=pg-alpha",
		"BINDERY_ENDPOINT=" + h.server.endpoint()}
	cmd.Stdin = bytes.NewReader(data)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must runs what has to succeed.
func (h *handHook) must(t testing.TB, action string, generation int, change map[string]any) string {
	t.Helper()
	out, errs, err := h.run(t, action, generation, change)
	if err != nil {
		t.Fatalf("%s %d: %v\n%s", action, generation, err, errs)
	}
	return out
}

func roleOf(generation int) string { return fmt.Sprintf("b6zpn3185_%d_0badcafe", generation) }

func passwordOf(generation int) string { return fmt.Sprintf("SECRETOFGENERATION%d", generation) }

// database is what issue said.
func database(t testing.TB, out string) string {
	t.Helper()
	var said struct{ Database string }
	if err := json.Unmarshal([]byte(out), &said); err != nil || said.Database == "" {
		t.Fatalf("it printed %q: %v", out, err)
	}
	return said.Database
}

// Kind: a hook that is run again, or not to its end, comes to another end; a dropped
// role takes data with it, or leaves somebody in; a password is in a log.
func TestPostgresHook(t *testing.T) {
	t.Parallel()
	needsPostgres(t)
	p := newPostgres(t, "pg-alpha")
	h := newHandHook(t, p)
	ctx := context.Background()

	db := database(t, h.must(t, "issue", 5, nil))
	if again := database(t, h.must(t, "issue", 5, nil)); again != db {
		t.Errorf("it has two databases: %s and %s", db, again)
	}
	old, err := p.connect(roleOf(5), db, passwordOf(5))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close(ctx)
	if _, err := old.Exec(ctx, "CREATE TABLE page (id int); INSERT INTO page VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if db2 := database(t, h.must(t, "issue", 9, nil)); db2 != db {
		t.Errorf("the next generation has another database: %s, not %s", db2, db)
	}
	if diff := cmp.Diff([]string{roleOf(5), roleOf(9)}, p.logins(t)); diff != "" {
		t.Error(diff)
	}

	// Its session is open when it is revoked.
	h.must(t, "revoke", 5, nil)
	h.must(t, "revoke", 5, nil)
	if err := old.Ping(ctx); err == nil {
		t.Error("a session of the revoked role is left")
	}
	if conn, err := p.connect(roleOf(5), db, passwordOf(5)); err == nil {
		conn.Close(ctx)
		t.Error("the revoked role logs in")
	}
	now, err := p.connect(roleOf(9), db, passwordOf(9))
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close(ctx)
	for _, sql := range []string{"INSERT INTO page VALUES (2)", "ALTER TABLE page ADD COLUMN text text", "DROP TABLE page"} {
		if _, err := now.Exec(ctx, sql); err != nil {
			t.Errorf("what the dropped role had made is not the next one's: %s: %v", sql, err)
		}
	}

	// Others have no business there.
	other := map[string]any{"binding": "01M8P0H60DFA7QNAWE6ZPN3199", "username": "b6zpn3199_5_0badcafe"}
	otherDB := database(t, h.must(t, "issue", 5, other))
	if otherDB == db {
		t.Errorf("two bindings share the database %s", db)
	}
	if conn, err := p.connect("b6zpn3199_5_0badcafe", db, passwordOf(5)); err == nil {
		conn.Close(ctx)
		t.Error("another binding's role gets into the database")
	}
	if got := p.refusedLogins(t); len(got) != 2 {
		t.Errorf("of two failed logins the log has %q", got)
	}

	// A copy of the server knows the same roles.
	moved, err := p.moved(t, "pg-moved").connect(roleOf(9), db, passwordOf(9))
	if err != nil {
		t.Fatal(err)
	}
	defer moved.Close(ctx)
	for conn, want := range map[*pgx.Conn]string{now: "pg-alpha", moved: "pg-moved"} {
		var server string
		if err := conn.QueryRow(ctx, "SELECT server FROM marker").Scan(&server); err != nil || server != want {
			t.Errorf("it is on %s (%v), want %s", server, err, want)
		}
	}

	h.must(t, "clean", 9, nil)
	h.must(t, "clean", 77, nil) // never made
	h.must(t, "revoke", 5, other)
	if left := p.logins(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if got := p.list(t, "postgres", "SELECT datname::text FROM pg_database WHERE datdba::regrole::text LIKE 'bindery_%' ORDER BY 1"); len(got) != 2 {
		t.Errorf("the databases are %v, want %s and %s", got, db, otherDB)
	}
	if log := p.log(t); strings.Contains(log, passwordOf(5)) || strings.Contains(log, passwordOf(9)) || !strings.Contains(log, "SCRAM-SHA-256$4096:") {
		t.Errorf("the server's log of statements has a password, or is none:\n%s", log)
	}
}

// Kind: what a role made past its owner's role keeps it from being dropped.
func TestPostgresHookOwnership(t *testing.T) {
	t.Parallel()
	needsPostgres(t)
	p := newPostgres(t, "pg-alpha")
	h := newHandHook(t, p)
	ctx := context.Background()
	db := database(t, h.must(t, "issue", 5, nil))
	// An operator let it make things in its own name, here and elsewhere.
	p.exec(t, "postgres", "CREATE DATABASE reports")
	for _, d := range []string{db, "reports"} {
		p.exec(t, d, fmt.Sprintf("GRANT CREATE ON DATABASE %q TO %q; GRANT CREATE ON SCHEMA public TO %[2]q", d, roleOf(5)))
		conn, err := p.connect(roleOf(5), d, passwordOf(5))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, "SET ROLE NONE; CREATE SCHEMA mine; CREATE TABLE mine.odd AS SELECT 7 AS n; GRANT SELECT ON mine.odd TO PUBLIC"); err != nil {
			t.Fatal(err)
		}
		conn.Close(ctx)
	}
	// What the superuser granted, who is none cannot take back: it says so, and nobody logs in.
	if _, errs, err := h.run(t, "revoke", 5, nil); err == nil || !strings.HasSuffix(strings.TrimSpace(errs), "cannot be dropped because some objects depend on it") {
		t.Errorf("%v: %s", err, errs)
	}
	if left := p.logins(t); len(left) > 0 {
		t.Errorf("still let in: %v", left)
	}
	p.exec(t, "postgres", "ALTER ROLE bindery SUPERUSER")
	h.must(t, "revoke", 5, nil)
	if left := p.list(t, "postgres", "SELECT rolname::text FROM pg_roles WHERE rolname = '"+roleOf(5)+"'"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	owner := "bindery_" + strings.ToLower(handBinding)
	for _, d := range []string{db, "reports"} {
		if got := p.list(t, d, "SELECT tableowner::text FROM pg_tables WHERE tablename = 'odd'"); !slices.Equal(got, []string{owner}) {
			t.Errorf("in %s the table is %v's, want %s's", d, got, owner)
		}
	}
}

// Kind: an operator's own database, or a name that is odd, is not the binding's.
func TestPostgresHookDatabase(t *testing.T) {
	t.Parallel()
	needsPostgres(t)
	p := newPostgres(t, "pg-alpha")
	h := newHandHook(t, p)
	owner := "bindery_" + strings.ToLower(handBinding)
	for _, name := range []string{`o'dd "name\`, "wiki"} {
		p.exec(t, "postgres", fmt.Sprintf("DO $$ BEGIN IF to_regrole('%[1]s') IS NULL THEN CREATE ROLE %[1]s; GRANT %[1]s TO bindery WITH ADMIN OPTION; END IF; END $$", owner))
		p.exec(t, "postgres", "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" OWNER "+owner)
		if got := database(t, h.must(t, "issue", 5, nil)); got != name {
			t.Errorf("the database is %s, want the one that its owner's role has: %s", got, name)
		}
		conn, err := pgx.ParseConfig(p.url(roleOf(5), "x", passwordOf(5)))
		if err != nil {
			t.Fatal(err)
		}
		conn.Database = name
		c, err := pgx.ConnectConfig(context.Background(), conn)
		if err != nil {
			t.Fatal(err)
		}
		c.Close(context.Background())
		h.must(t, "revoke", 5, nil)
		p.exec(t, "postgres", "ALTER DATABASE "+pgx.Identifier{name}.Sanitize()+" OWNER TO postgres")
	}
	for _, name := range []string{"one", "two"} {
		p.exec(t, "postgres", "CREATE DATABASE "+name+" OWNER "+owner)
	}
	if _, errs, err := h.run(t, "issue", 5, nil); err == nil || !strings.Contains(errs, "more than one row") {
		t.Errorf("of two databases it took one: %v, %s", err, errs)
	}
	if left := p.logins(t); len(left) > 0 {
		t.Errorf("a role that has no database logs in: %v", left)
	}
}

// Kind: what the agent never says, or a server that is not there, is taken for success.
func TestPostgresHookRefuses(t *testing.T) {
	t.Parallel()
	needsPostgres(t)
	p := newPostgres(t, "pg-alpha")
	h := newHandHook(t, p)
	for _, bad := range []map[string]any{{"username": `x"; DROP ROLE bindery; --`}, {"username": ""},
		{"password": "with\nline"}, {"password": "ü"}, {"password": ""}, {"assignment": "ü"}} {
		if out, _, err := h.run(t, "issue", 5, bad); err == nil {
			t.Errorf("%v: it printed %s", bad, out)
		}
	}
	for attribute, why := range map[string]string{"CREATEROLE": "CREATEROLE|permission denied to create role", "CREATEDB": "permission denied to create database",
		"LOGIN": "is not permitted to log in"} { // versions say it in other words
		p.exec(t, "postgres", "ALTER ROLE bindery NO"+attribute)
		if _, errs, err := h.run(t, "issue", 5, nil); err == nil || !regexp.MustCompile(why).MatchString(errs) {
			t.Errorf("without %s: %v, %s", attribute, err, errs)
		}
		p.exec(t, "postgres", "ALTER ROLE bindery "+attribute)
	}
	if left := p.logins(t); len(left) > 0 {
		t.Errorf("of what was refused, these log in: %v", left)
	}
	p.stop(t)
	for _, action := range []string{"issue", "revoke", "clean"} {
		_, errs, err := h.run(t, action, 5, nil)
		if err == nil || strings.Contains(errs, passwordOf(5)) || errs == "" {
			t.Errorf("%s without a server: %v, %q", action, err, errs)
		}
	}
	if _, errs, err := h.run(t, "dance", 5, nil); err == nil || !strings.Contains(errs, "no action dance") {
		t.Errorf("an unknown action: %v, %q", err, errs)
	}
}
