package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"bindery/ledger"
)

func TestPublicURL(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"nats://h:4222":               "nats://h:4222",
		"nats://tok@h:4222":           "nats://h:4222",
		"tls://u:p@h":                 "tls://h",
		"tok@h:4222":                  "h:4222",
		"nats://u:p@ss/w@h:4222":      "nats://h:4222",
		"nats://a@h:1,nats://b:c@i:2": "nats://h:1,nats://i:2",
	} {
		if got := publicURL(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// verbs are all commands that do something, each with arguments that it takes.
func verbs(cmd *cobra.Command) [][]string {
	var out [][]string
	for _, sub := range cmd.Commands() {
		for _, v := range verbs(sub) {
			out = append(out, append([]string{sub.Name()}, v...))
		}
	}
	if len(out) > 0 {
		return out
	}
	var args []string
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.ToUpper(word) != word || strings.ContainsAny(word, "[(|-") {
			break
		}
		args = append(args, "wiki")
	}
	return [][]string{args}
}

// What logs in to a server is in no output of any verb, wherever the URL comes from
// and whatever is wrong with it.
func TestLoginsAreNotShown(t *testing.T) {
	const token, password = "s3cr3t-t0ken-of-nobody", "pass'word-0f-nobody"
	dir := t.TempDir()
	key, err := ledger.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds := filepath.Join(dir, "key.nk")
	put(t, creds, string(seed), 0o600)
	all := verbs((&cli{program: NewProgram()}).root())
	if len(all) < 50 {
		t.Fatalf("only %d verbs were found", len(all))
	}
	for what, url := range map[string]string{
		"a token":    "nats://" + token + "@127.0.0.1:1",
		"no scheme":  token + "@127.0.0.1:1",
		"a password": "nats://ann:" + password + "@127.0.0.1:1",
		"two":        "nats://127.0.0.1:1,nats://" + token + "@127.0.0.1:2",
		"no URL":     "nats://" + token + "@127.0.0.1:port",
		"not parsed": "nats://" + token + "%zz@[::1:1",
	} {
		context := filepath.Join(dir, what+".json")
		put(t, context, `{"url":"`+url+`","nkey":"`+creds+`"}`, 0o600)
		for _, from := range []string{"--server", "--server=", "NATS_URL", "--context"} {
			some := all
			if what != "a password" || from != "NATS_URL" { // one kind goes through every verb, the others through one of each way to a server
				some = [][]string{{"status"}, {"init"}, {"apply"}, {"serve"}, {"agent"}, {"doctor"}, {"watch"}, {"restore", "wiki"}, {"audit", "verify"}, {"log"}}
			}
			t.Run(what+" from "+from, func(t *testing.T) {
				t.Parallel()
				runVerbs(t, some, from, url, context, creds, []string{token, password, "word-0f-nobody"})
			})
		}
	}
}

func runVerbs(t *testing.T, all [][]string, from, url, file, creds string, secrets []string) {
	p := &patientStore{Program: NewProgram(), t: t, env: map[string]string{"HOME": t.TempDir(), "BINDERY_ACTOR": "ann"}}
	p.Getenv = func(key string) string { return p.env[key] }
	var with []string
	switch from {
	case "--server":
		with = []string{"--server", url, "--creds", creds}
	case "--server=":
		with = []string{"--server=" + url, "--creds", creds}
	case "--context":
		with = []string{"--context", file}
	default:
		p.env["NATS_URL"], p.env["NATS_CREDS"] = url, creds
	}
	printed := 0
	for _, v := range all {
		if slices.Contains(v, "keygen") || v[0] == "completion" || v[0] == "version" {
			continue
		}
		for _, more := range [][]string{nil, {"--reason", "r", "--node", "n"}, {"--no-such-flag"}, {"--from", "seq:1", "-o", "json"}} {
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // one that waits for ever is ended
			p.run(ctx, append(append(append([]string{}, v...), with...), append(more, "--timeout", "100ms", "--mesh", "home")...)...)
			stop()
			printed += p.errs.Len()
			for _, out := range []string{p.out.String(), p.errs.String()} {
				for _, secret := range secrets {
					if strings.Contains(out, secret) {
						t.Errorf("%v %v: %s", v, more, out)
					}
				}
			}
		}
	}
	if printed == 0 {
		t.Error("nothing was printed")
	}
	if left, _ := os.ReadDir(p.env["HOME"]); len(left) > 0 {
		t.Logf("left in HOME: %v", left)
	}
}
