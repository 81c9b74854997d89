package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// On a server where others than the serving processes can publish what the ledger is
// kept under, it is not served.
func TestServeRefusesWhereOthersPublish(t *testing.T) {
	t.Parallel()
	keys := newKeyring(t, "writer", "answers", "ann")
	together := func(writer, answers, more string) string {
		return fmt.Sprintf("accounts { one { jetstream: enabled, users: [ { nkey: %s %s }, { nkey: %s %s }, { nkey: %s, permissions: { publish: [\"bindery-req.home.>\", \"$JS.API.>\"], subscribe: [\"_INBOX.%s.>\"] } } ] } }\n%s",
			keys.public["writer"], writer, keys.public["answers"], answers, keys.public["ann"], keys.public["ann"], more)
	}
	const only = `, permissions: { publish: ["_INBOX.>"], subscribe: ["bindery-req.>"] }`
	right := keys.permissions("ann")
	for name, c := range map[string]struct {
		accounts string
		args     []string
	}{
		"all have keys in the global account":         {"authorization { users: [ " + nkeyUser(keys.public["writer"]) + ", " + nkeyUser(keys.public["answers"]) + " ] }\n", []string{"--answer-creds", keys.file("answers")}},
		"answers may publish everywhere":              {together("", "", ""), []string{"--answer-creds", keys.file("answers")}},
		"answers have the writer's key":               {right, []string{"--answer-creds", keys.file("writer")}},
		"no key for answers":                          {right, nil},
		"who has no key is let into the same account": {together("", only, "no_auth_user: "+keys.public["ann"]+"\n"), []string{"--answer-creds", keys.file("answers")}},
		"answers may publish documents":               {strings.Replace(right, `publish: ["_INBOX.>"]`, `publish: ["_INBOX.>", "$KV.>"]`, 1), []string{"--answer-creds", keys.file("answers")}},
		"answers may publish events":                  {strings.Replace(right, `publish: ["_INBOX.>"]`, `publish: ["_INBOX.>", "bindery.>"]`, 1), []string{"--answer-creds", keys.file("answers")}},
		"answers may call JetStream":                  {strings.Replace(right, `publish: ["_INBOX.>"]`, `publish: ["_INBOX.>", "$JS.API.>"]`, 1), []string{"--answer-creds", keys.file("answers")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := natsServers(t, 1, c.accounts)
			writer := keys.on(servers[0].ClientURL(), "writer")
			writer.refused(t, "ledger_exposed", 4, append([]string{"serve"}, c.args...)...)
		})
	}
}

// Where everybody is let in, nobody serves: neither with a key, which such a server
// does not know what to do with, nor without.
func TestServeRefusesWhereNobodyIsAsked(t *testing.T) {
	t.Parallel()
	keys := newKeyring(t, "writer")
	open := keys.on(natsServers(t, 1, "")[0].ClientURL(), "writer")
	open.refused(t, "unreachable", 7, "serve", "--answer-creds", keys.file("writer"))
	open.env = open.env[:2] // no key
	open.refused(t, "ledger_exposed", 4, "serve")
}

func nkeyUser(key string) string { return "{ nkey: " + key + " }" }
