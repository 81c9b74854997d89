package agent

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"bindery/events"
)

// maxReason is how much of what a hook says is recorded, in bytes.
const maxReason = 200

// masked stands where a text would repeat a secret.
const masked = "***"

// shortSecret is the length below which a value is not cut out of a text but
// condemns it: what is left around it would tell.
const shortSecret = 4

// lastLine is the last line of text that has something on it. Where the beginning
// of text was cut off, a line without a beginning is none: what is left of it may
// be half a secret.
func lastLine(text string, cut bool) string {
	text = strings.TrimRightFunc(text, unicode.IsSpace)
	i := strings.LastIndexAny(text, "\n\r")
	if i < 0 && cut {
		return ""
	}
	return strings.TrimSpace(text[i+1:])
}

// fit makes a line fit to be recorded and read by everybody, for ever: without
// secrets, printable, short. It reports false where that cannot be.
func fit(line string, secrets []string) (string, bool) {
	for _, s := range disguises(secrets) {
		if len(s) < shortSecret {
			if strings.Contains(line, s) {
				return "", false
			}
			continue
		}
		line = strings.ReplaceAll(line, s, masked)
	}
	line = strings.Join(strings.FieldsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError || r == ' ' }), " ")
	if len(line) > maxReason {
		line = strings.ToValidUTF8(line[:maxReason-len("…")], "") + "…"
	}
	return line, events.CheckReason(line) == nil
}

// disguises are the ways a secret may be written in a message, the longest first.
func disguises(secrets []string) []string {
	var out []string
	for _, s := range secrets {
		if s == "" {
			continue
		}
		quoted := strconv.Quote(s)
		out = append(out, s, url.QueryEscape(s), url.PathEscape(s), quoted[1:len(quoted)-1],
			base64.StdEncoding.EncodeToString([]byte(s)), base64.URLEncoding.EncodeToString([]byte(s)))
		out = append(out, strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })...) // a line of it
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(out)
}
