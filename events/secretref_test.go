package events

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSecretRef(t *testing.T) {
	for _, good := range []string{"file:/etc/wiki/db", "sealed:pg-a/wiki-33", "vault:kv/data/wiki@7", "env:DB_PASSWORD", "op:home/wiki.db"} {
		if err := CheckSecretRef(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "hunter2", "hunter2:x", "file:", "file:a b", "file:../etc/shadow", "file:/a/../b", "FILE:a",
		"postgres:s3cret", "vault:kv:data", "vault:a#b", "file:a\n", "file:ü", "file:" + strings.Repeat("a", MaxSecretRef),
		"-----BEGIN PRIVATE KEY-----", "postgres://u:hunter22@h/db"} {
		err := CheckSecretRef(bad)
		if !errors.Is(err, ErrSecret) {
			t.Errorf("%q: %v, want one that wraps ErrSecret", bad, err)
		} else if len(bad) > 6 && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: the error repeats it: %v", bad, err)
		}
	}
	if !slices.IsSorted(SecretSchemes()) {
		t.Error("the schemes are not sorted")
	}
}
