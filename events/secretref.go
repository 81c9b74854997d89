package events

import (
	"fmt"
	"slices"
	"strings"
)

// SecretRef says where a secret lies: scheme:path. It is no secret itself.
type SecretRef string

// secretSchemes are the places a secret may lie in. The list is only added to:
// what is written stays readable.
var secretSchemes = []string{
	"age",      // a file encrypted with age
	"aws-sm",   // AWS Secrets Manager
	"azure-kv", // Azure Key Vault
	"bao",      // OpenBao
	"bw",       // Bitwarden, Vaultwarden
	"env",      // a variable of the consumer's environment
	"file",     // a file on the consumer's node
	"gcp-sm",   // Google Secret Manager
	"infisical",
	"k8s",     // a Kubernetes Secret
	"op",      // 1Password
	"pass",    // the standard Unix password manager
	"sealed",  // bindery's own bucket of values sealed to the consumer's node
	"sops",    // a file encrypted with SOPS
	"systemd", // a systemd credential
	"vault",   // HashiCorp Vault
}

// SecretSchemes lists the schemes of secret references, sorted.
func SecretSchemes() []string { return slices.Clone(secretSchemes) }

// MaxSecretRef is the greatest length of a secret reference in bytes.
const MaxSecretRef = 255

// CheckSecretRef reports whether s is a reference to a secret: one of
// SecretSchemes, a colon and a path of A-Z a-z 0-9 . _ / @ - without a ".."
// segment, 255 bytes at most. What is anything else may be the secret itself:
// every error wraps ErrSecret, and none repeats s.
func CheckSecretRef(s string) error {
	scheme, path, found := strings.Cut(s, ":")
	switch {
	case s == "":
		return fmt.Errorf("the secret reference is empty; it is scheme:path: %w", ErrSecret)
	case len(s) > MaxSecretRef:
		return fmt.Errorf("the secret reference is %d bytes long; at most %d are allowed: %w", len(s), MaxSecretRef, ErrSecret)
	case !found || !slices.Contains(secretSchemes, scheme):
		return fmt.Errorf("the secret reference is not scheme:path with a scheme of %s: %w", strings.Join(secretSchemes, ", "), ErrSecret)
	case path == "" || strings.ContainsFunc(path, notInPath):
		return fmt.Errorf("the path of the secret reference is not of A-Z a-z 0-9 . _ / @ -: %w", ErrSecret)
	case slices.Contains(strings.Split(path, "/"), ".."):
		return fmt.Errorf(`the path of the secret reference has a ".." segment: %w`, ErrSecret)
	}
	return CheckNoSecret(s)
}

func notInPath(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._/@-", r))
}
