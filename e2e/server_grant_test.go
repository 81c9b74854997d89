package e2e

import (
	"path/filepath"
	"testing"
)

// On a server of one's own a key is let in by what access permissions prints of the
// ledger's grants; what it may ask ends with its revocation, before the server knows.
func TestGrantOnServer(t *testing.T) {
	t.Parallel()
	keys := newKeyring(t, "writer", "answers", "ann", "on-alpha")
	servers := natsServers(t, 1, keys.permissions("ann"))
	url := servers[0].ClientURL()
	keys.on(url, "writer").must(t, "init", "--mesh", "home", "--operator", "ann", "--nkey", keys.public["ann"])
	keys.on(url, "writer").serve(t, "--answer-creds", keys.file("answers"))
	ann := keys.on(url, "ann")
	ann.must(t, "apply", "-f", write(t, filepath.Join(keys.dir, "small.yaml"), small))
	ann.must(t, "access", "grant", "on-alpha", "--role", "agent", "--node", "alpha", "--nkey", keys.public["on-alpha"])
	agent := keys.on(url, "on-alpha")
	agent.refused(t, "not_permitted", 4, "provider", "holders", "pg-alpha") // the server does not let it in yet

	// The keys of writers are in the ledger, too; the one that answers is not.
	reload(t, servers, ann.must(t, "access", "permissions", "--answers-nkey", keys.public["answers"]))
	agent.must(t, "provider", "holders", "pg-alpha")
	ann.must(t, "status") // through the reload

	ann.must(t, "access", "revoke", "on-alpha")
	if r := agent.run(t, "provider", "holders", "pg-alpha", "--timeout", "3s"); r.code == 0 {
		t.Errorf("a revoked key is answered: %s", r.stdout)
	}
	reload(t, servers, ann.must(t, "access", "permissions", "--answers-nkey", keys.public["answers"]))
	agent.refused(t, "not_permitted", 4, "provider", "holders", "pg-alpha")
	ann.must(t, "status")
}
