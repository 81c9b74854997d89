package agent

import (
	"os"
	"path/filepath"
	"testing"

	"bindery/commands"
)

// Kind: a secret that is no secret. What a hook, a resolver or a file gives is strings with
// something in them, or it is not taken.
func TestParseSecret(t *testing.T) {
	if got, err := parseSecret([]byte(`{"username":"u","password":"p w","database":"d"}`)); err != nil || len(got) != 3 || got["password"] != "p w" {
		t.Errorf("%v, %v", got, err)
	}
	for _, data := range []string{`{"password":null}`, `{"username":"u","password":null}`, `{"password":""}`, `{"password":" "}`, `{"username":"\t","password":"p"}`,
		`{"password":1}`, `{"password":true}`, `{"password":["p"]}`, `{"password":{"x":"y"}}`, `["p"]`, `"p"`, "null", "", "{", `{"a":"b"} {"c":"d"}`,
		"{\"password\":\"\xff\"}"} {
		if got, err := parseSecret([]byte(data)); err == nil {
			t.Errorf("%s is taken: %v", data, got)
		}
	}
	if _, err := someSecret(map[string]string{}, "it"); err == nil {
		t.Error("nothing is taken for a secret")
	}
}

// Kind: a secret that leads to another server than the ledger says.
func TestCheckAddress(t *testing.T) {
	type row struct{ entry, value, endpoint string }
	for _, r := range []row{
		{"uri", "postgres://u:p@alpha.mesh:5432/wiki", "alpha.mesh:5432"}, {"uri", "postgresql://u:p@ALPHA.mesh/wiki", "alpha.mesh:5432"},
		{"jdbc-url", "jdbc:postgresql://alpha.mesh:5432/wiki", "alpha.mesh:5432"}, {"url", "https://sso.mesh/x", "https://sso.mesh"},
		{"url", "https://sso.mesh:443/x", "https://sso.mesh"}, {"uri", "amqp://[fd00::1]:5672", "[fd00::1]:5672"},
		{"note", "postgres://elsewhere/x", "alpha.mesh:5432"}, {"uri", "no address at all", "alpha.mesh:5432"},
	} {
		if err := checkAddress(map[string]string{r.entry: r.value}, r.endpoint); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range []row{
		{"uri", "postgres://u:p@beta.mesh:5432/wiki", "alpha.mesh:5432"}, {"uri", "postgres://u:p@alpha.mesh:5433/wiki", "alpha.mesh:5432"},
		{"uri", "postgres://alpha.mesh/wiki", "alpha.mesh:5433"}, {"url", "https://sso.mesh:8443", "https://sso.mesh"},
		{"jdbc-url", "jdbc:postgresql://beta.mesh:5432/wiki", "alpha.mesh:5432"}, {"uri", "postgres://alpha.mesh:5432@beta.mesh:5432/x", "alpha.mesh:5432"},
		{"uri", "postgres://alpha.mesh:%zz/x", "alpha.mesh:5432"},
	} {
		if err := checkAddress(map[string]string{r.entry: r.value}, r.endpoint); err == nil {
			t.Errorf("%+v is taken", r)
		}
	}
}

// A hook that gives no secret replaces none: the one in use stays, where it is and at the
// service.
func TestBadSecretReplacesNothing(t *testing.T) {
	t.Parallel()
	for name, printed := range map[string]string{
		"null": `{"password":null}`, "empty": `{"password":""}`, "another server": `{"uri":"postgres://u:p@elsewhere:1/x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.spec("alpha")
			w.start(w.agent(s))
			w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
			w.eventually("it runs", func() error { return w.exact("alpha") })
			file := filepath.Join(s.Root, "bindings", "by-name", "wiki", "db", "password")
			before, err := os.ReadFile(file)
			w.must(err)
			w.hook("provider", "#!/bin/sh\ncat > /dev/null\necho '"+printed+"'\n")
			w.do(commands.RequestCredential{Slot: "wiki/db"})
			w.eventually("it is told", func() error { return w.tells("what the hook printed: ", false) })
			if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
				t.Errorf("the file has changed, or is gone: %v", err)
			}
			if n := w.revoked(); n != 0 {
				t.Errorf("%d are revoked", n)
			}
			w.hook("provider", journalled("../../../docs/agent/hooks/provider/toy"))
			w.eventually("the next one is taken", func() error { return w.exact("alpha") })
		})
	}
}
