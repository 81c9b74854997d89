package events

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
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
// fragment. Anything that could carry a credential wraps ErrSecret. No error
// repeats the value: what is malformed may be a secret in the wrong place.
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
			return errEndpoint
		}
		return cmp.Or(checkHost(host, strings.HasPrefix(s, "[")), checkPort(port))
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Opaque != "" {
		return errEndpoint
	}
	if err := checkHost(u.Hostname(), strings.HasPrefix(u.Host, "[")); err != nil {
		return err
	}
	if u.Port() == "" && !strings.HasSuffix(u.Host, ":") {
		return nil
	}
	return checkPort(u.Port())
}

var errEndpoint = errors.New("endpoint is neither host:port nor scheme://host[:port][/path]")

// checkHost takes an address or a host name; brackets are for IPv6 only.
func checkHost(host string, bracketed bool) error {
	if addr, err := netip.ParseAddr(host); bracketed || err == nil {
		if err != nil || addr.Is6() != bracketed || addr.Zone() != "" {
			return errors.New("endpoint: the host in brackets is no IPv6 address, or has a zone")
		}
		return nil
	}
	if host == "" {
		return errors.New("endpoint has no host")
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if len(label) > MaxName || !hostLabel.MatchString(label) {
			return errors.New("endpoint: the host is not a name (RFC 1123 section 2.1) and not an address")
		}
	}
	return nil
}

func checkPort(port string) error {
	if n := parseCount(port); n < 1 || n > 65535 {
		return errors.New("endpoint: the port is not a number from 1 to 65535")
	}
	return nil
}

// What gives a secret away in free text. Kept few and certain: a refusal that
// is wrong teaches people to work around it. Payloads are checked when they are
// read, too, so that a new pattern must not match an endpoint already stored.
var secretPatterns = []struct {
	what  string
	least int    // length in bytes of what matches, and
	has   string // a part of it: together they spare most texts the expression
	re    *regexp.Regexp
}{
	{"a URL with a password", 8, "@", regexp.MustCompile(`(?i)[a-z][a-z0-9+.-]*://[^\s/@:]*:[^\s/@]+@`)},
	{"a private key block", 20, "-----BEGIN ", regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY`)},
	{"a password assignment", 8, "", regexp.MustCompile(`(?i)(pass(word|wd|phrase)|(\b|_)(pass|pwd|secret|token|(api|access|secret)[_-]?key))["']?\s*[=:]\s*\S{4,}`)},
	{"an nkey seed", 58, "S", regexp.MustCompile(`\bS[ACNOUX][A-Z2-7]{56}\b`)},
}

// CheckNoSecret reports whether text carries what looks like a secret: the
// error wraps ErrSecret, names the kind and never the value.
func CheckNoSecret(text string) error {
	for _, p := range secretPatterns {
		if len(text) >= p.least && strings.Contains(text, p.has) && p.re.MatchString(text) {
			return fmt.Errorf("%s: %w", p.what, ErrSecret)
		}
	}
	return nil
}
