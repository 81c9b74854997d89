package main

import (
	"net/url"
	"slices"
	"strings"
)

// The URL of a server may have a login in it: a token, or a user and a password. It is
// used to connect, and is shown nowhere.

// publicURL is one URL, or several with commas between, without what logs in.
func publicURL(urls string) string {
	parts := strings.Split(urls, ",")
	for i, part := range parts {
		scheme, rest := cutScheme(part)
		if _, after, found := cutLogin(rest); found {
			parts[i] = scheme + after
		}
	}
	return strings.Join(parts, ",")
}

// cutScheme parts "nats://" from what follows; a server may be named without it.
func cutScheme(s string) (scheme, rest string) {
	if before, after, found := strings.Cut(s, "://"); found {
		return before + "://", after
	}
	return "", s
}

// cutLogin parts what logs in from what follows its @. A password may have any
// character that somebody forgot to escape: only the last @ ends it.
func cutLogin(s string) (login, rest string, found bool) {
	i := strings.LastIndexByte(s, '@')
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// leastLogin is the length below which a part of a login is not looked for in a text
// by itself: it may be a part of any word.
const leastLogin = 4

// loginsIn are the texts that must not be shown of some URLs, the longest first.
func loginsIn(urls string) []string {
	var out []string
	for part := range strings.SplitSeq(urls, ",") {
		_, rest := cutScheme(part)
		login, _, found := cutLogin(rest)
		if !found || login == "" {
			continue
		}
		user, password, both := strings.Cut(login, ":")
		secret := user // a token
		if both {
			secret = password
		}
		for _, s := range []string{login + "@", login, secret} {
			out = append(out, s)
			if plain, err := url.PathUnescape(s); err == nil {
				out = append(out, plain)
			}
		}
	}
	out = slices.DeleteFunc(out, func(s string) bool { return len(s) < leastLogin && !strings.HasSuffix(s, "@") })
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(out)
}

// servers are the URLs of servers that this run was given, wherever from.
func (c *cli) servers() []string {
	out := append([]string{c.globals.server}, c.contextURLs...)
	if c.program != nil {
		out = append(out, c.program.Getenv("NATS_URL"))
	}
	for i, a := range c.args { // where the flags were not read
		value, joined := strings.CutPrefix(a, "--server=")
		switch {
		case joined:
			out = append(out, value)
		case i > 0 && c.args[i-1] == "--server" || strings.Contains(a, "://"):
			out = append(out, a)
		}
	}
	return out
}

// withoutLogins is a text without what logs in to a server.
func (c *cli) withoutLogins(text string) string {
	for _, urls := range c.servers() {
		if !strings.Contains(urls, "@") {
			continue
		}
		for _, s := range loginsIn(urls) {
			by := notShown
			if strings.HasSuffix(s, "@") {
				by = ""
			}
			text = strings.ReplaceAll(text, s, by)
		}
	}
	return text
}

// publicArgs are arguments without the logins of servers in them.
func publicArgs(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		switch value, joined := strings.CutPrefix(a, "--server="); {
		case joined:
			out[i] = "--server=" + publicURL(value)
		case i > 0 && args[i-1] == "--server" || strings.Contains(a, "://"):
			out[i] = publicURL(a)
		}
	}
	return out
}
