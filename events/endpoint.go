package events

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// MaxEndpoint is the greatest length of an endpoint in bytes.
const MaxEndpoint = 255

// ErrSecret marks an error about a value that carries a secret. Its message
// never repeats the value.
var ErrSecret = errors.New("the value carries a secret")

var hostLabel = regexp.MustCompile(`^[a-zA-Z0-9_]([a-zA-Z0-9_-]*[a-zA-Z0-9_])?$`)

// CheckEndpoint reports whether s is where a provider answers: host:port, or
// scheme://host[:port][/path] (RFC 3986), never with user, password, query or
// fragment. Anything that could carry a credential wraps ErrSecret.
func CheckEndpoint(s string) error {
	if err := CheckNoSecret(s); err != nil {
		return err
	}
	switch {
	case s == "":
		return errors.New("endpoint is empty")
	case len(s) > MaxEndpoint:
		return fmt.Errorf("endpoint is %d bytes long; at most %d are allowed", len(s), MaxEndpoint)
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return errors.New("endpoint has a space, a control or a non-ASCII character")
	case strings.Contains(s, "@"):
		return fmt.Errorf("endpoint has a user part: %w", ErrSecret)
	case strings.ContainsAny(s, "?#"):
		return fmt.Errorf("endpoint has a query or a fragment: %w", ErrSecret)
	}
	if !strings.Contains(s, "://") {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return fmt.Errorf("endpoint %q is neither host:port nor scheme://host[:port][/path]", s)
		}
		return checkHostPort(s, host, port)
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Opaque != "" || u.Hostname() == "" {
		return fmt.Errorf("endpoint %q is neither host:port nor scheme://host[:port][/path]", s)
	}
	return checkHostPort(s, u.Hostname(), u.Port())
}

// checkHostPort checks the parts; an empty port is one that was not given.
func checkHostPort(whole, host, port string) error {
	if net.ParseIP(host) == nil {
		if host == "" {
			return fmt.Errorf("endpoint %q has no host", whole)
		}
		for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
			if !hostLabel.MatchString(label) {
				return fmt.Errorf("endpoint %q: host label %q is not one (RFC 1123 section 2.1)", whole, label)
			}
		}
	}
	if port == "" && strings.Contains(whole, "://") {
		return nil
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("endpoint %q: port %q is not 1 to 65535", whole, port)
	}
	return nil
}

// What gives a secret away in free text. Kept few and certain: a refusal that
// is wrong teaches people to work around it.
var secretPatterns = []struct {
	what string
	re   *regexp.Regexp
}{
	{"a URL with a password", regexp.MustCompile(`(?i)[a-z][a-z0-9+.-]*://[^\s/@:]*:[^\s/@]+@`)},
	{"a private key block", regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY`)},
	{"a password assignment", regexp.MustCompile(`(?i)\b(pass(word|wd|phrase)?|pwd|secret|token|api[_-]?key)\s*[=:]\s*\S{4,}`)},
	{"an nkey seed", regexp.MustCompile(`\bS[ACNOUX][A-Z2-7]{56}\b`)},
}

// CheckNoSecret reports whether text carries what looks like a secret: the
// error wraps ErrSecret, names the kind and never the value.
func CheckNoSecret(text string) error {
	for _, p := range secretPatterns {
		if p.re.MatchString(text) {
			return fmt.Errorf("%s: %w", p.what, ErrSecret)
		}
	}
	return nil
}
