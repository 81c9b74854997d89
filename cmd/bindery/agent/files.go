package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The files of a slot are those of the Service Binding specification 1.1: a file
// an entry, its name the entry's, its content the value.
const (
	entryType     = "type"
	entryProvider = "provider"
	entryHost     = "host"
	entryPort     = "port"
	entryURI      = "uri"
)

// Bounds of a secret.
const (
	maxEntries   = 64
	maxSecretLen = 64 << 10 // all names and values of a secret, in bytes
)

// secretEntry is what an entry of a secret may be called: never a path, never
// hidden.
var secretEntry = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// checkSecret reports whether a secret can be handed to a consumer. Its error
// repeats no value.
func checkSecret(secret map[string]string) error {
	if len(secret) > maxEntries {
		return fmt.Errorf("the secret has %d entries; at most %d are taken", len(secret), maxEntries)
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(secret)) {
		size += len(name) + len(secret[name])
		switch {
		case !secretEntry.MatchString(name):
			return errors.New("an entry of the secret has a name that is not of A-Z a-z 0-9 . _ -, begins with another than a letter or digit, or is too long")
		case name == entryType || name == entryProvider || name == entryHost || name == entryPort:
			return fmt.Errorf("the secret has an entry %q, which the ledger says", name)
		case strings.TrimSpace(secret[name]) == "":
			return fmt.Errorf("the entry %q of the secret is empty", name)
		}
	}
	if size > maxSecretLen {
		return fmt.Errorf("the secret has %d bytes; at most %d are taken", size, maxSecretLen)
	}
	return nil
}

// addressEntries are the entries of a secret that lead somewhere themselves.
var addressEntries = []string{entryURI, "url", "jdbc-url", "jdbcUrl", "connection-string"}

// checkAddress refuses a secret that leads to another server than the ledger says: a
// provider that moves would be left by some of its consumers only.
func checkAddress(secret map[string]string, endpoint string) error {
	host, port := hostPort(endpoint)
	if host == "" {
		return nil
	}
	for _, name := range addressEntries {
		value, there := secret[name]
		if !there || !strings.Contains(value, "://") {
			continue
		}
		u, err := url.Parse(strings.TrimPrefix(value, "jdbc:"))
		if err != nil { // its message would repeat it
			return fmt.Errorf("the entry %q of the secret cannot be read as a URI", name)
		}
		if !strings.EqualFold(u.Hostname(), host) || !samePort(u, port) {
			return fmt.Errorf("the entry %q of the secret leads to another server than the ledger says, %s", name, net.JoinHostPort(host, port))
		}
	}
	return nil
}

// usualPorts are those that a URI of the scheme leads to where it says none.
var usualPorts = map[string]string{"postgres": "5432", "postgresql": "5432", "mysql": "3306", "mariadb": "3306", "redis": "6379", "rediss": "6379",
	"amqp": "5672", "amqps": "5671", "mongodb": "27017", "http": "80", "https": "443", "nats": "4222", "ldap": "389", "ldaps": "636"}

func samePort(u *url.URL, port string) bool {
	if u.Port() == "" {
		return port == "" || port == usualPorts[u.Scheme]
	}
	return u.Port() == port || port == "" && u.Port() == usualPorts[u.Scheme]
}

// hostPort splits an endpoint, host:port or scheme://host[:port][/path]; what it
// does not say is "".
func hostPort(endpoint string) (host, port string) {
	if strings.Contains(endpoint, "://") {
		u, err := url.Parse(endpoint)
		if err != nil {
			return "", ""
		}
		return u.Hostname(), u.Port()
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return "", ""
	}
	return host, port
}

// slotFiles are the files of one slot.
func slotFiles(n *need, secret map[string]string) map[string]string {
	out := map[string]string{entryType: n.provision}
	if strings.Contains(n.endpoint, "://") {
		out[entryURI] = n.endpoint
	}
	maps.Copy(out, secret)
	if n.provider != "" {
		out[entryProvider] = n.provider
	}
	host, port := hostPort(n.endpoint)
	if host != "" {
		out[entryHost] = host
	}
	if port != "" {
		out[entryPort] = port
	}
	return out
}

// digest is of names and values, in their order.
func digest(files map[string]string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%d:%s%d:%s", len(name), name, len(files[name]), files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// writeSet writes the files of a slot beside those that are there, and returns the
// name of their directory. They need not be on disk: what a crash of the machine
// damages is found by its digest at the next start, and written anew.
func (t *tree) writeSet(home, slot string, files map[string]string) (string, error) {
	sets := path.Join(home, dirSets)
	for _, d := range []string{home, sets} {
		if err := t.mkdirShared(d); err != nil {
			return "", err
		}
	}
	name := fresh(slot + "-")
	dir := path.Join(sets, name)
	if err := t.root.Mkdir(dir, modeDir); err != nil {
		return "", err
	}
	for file, value := range files {
		if err := t.writeShared(path.Join(dir, file), value); err != nil {
			return "", err
		}
	}
	return name, t.mkdirShared(dir) // its mode last: nobody reads half of it
}

func (t *tree) writeShared(name, value string) error {
	f, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, modeFile)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	mode := fs.FileMode(modeFile)
	if err == nil && t.gid >= 0 {
		mode = modeGroupFile
		err = f.Chown(-1, t.gid)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	return errors.Join(err, f.Close())
}

// turnTo makes the slot's link lead to a set, at once.
func (t *tree) turnTo(home, slot, set string) error {
	return t.link(path.Join(dirSets, set), path.Join(home, slot), path.Join(home, dirSets))
}

// readSet reads the files that a slot's link leads to; nil where there are none or
// they are not a set of the slot's.
func (t *tree) readSet(home, slot string) map[string]string {
	target, err := t.root.Readlink(path.Join(home, slot))
	dir, set := path.Split(target)
	if err != nil || dir != dirSets+"/" || !strings.HasPrefix(set, slot+"-") {
		return nil
	}
	from := path.Join(home, dirSets, set)
	names, err := t.list(from)
	if err != nil || len(names) == 0 || len(names) > maxEntries+8 {
		return nil
	}
	out := make(map[string]string, len(names))
	for _, name := range names {
		data, err := t.read(path.Join(from, name), maxSecretLen)
		if err != nil {
			return nil
		}
		out[name] = string(data)
	}
	return out
}

// sweep removes the sets of a home that no link leads to.
func (t *tree) sweep(home string) error {
	names, err := t.list(home)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, slot := range names {
		if target, err := t.root.Readlink(path.Join(home, slot)); err == nil {
			used[path.Base(target)] = true
		}
	}
	sets, err := t.list(path.Join(home, dirSets))
	for _, set := range sets {
		if !used[set] {
			err = errors.Join(err, t.root.RemoveAll(path.Join(home, dirSets, set)))
		}
	}
	return err
}

// nameHome links an assignment's name to its directory, and removes the link of a
// name that it bore before.
func (t *tree) nameHome(id, name, before string) error {
	if before != "" && before != name {
		if err := t.unnameHome(id, before); err != nil {
			return err
		}
	}
	if t.leadsTo(id, name) {
		return nil
	}
	return t.link("../"+id, path.Join(dirByName, name), dirByName)
}

// unnameHome removes the link of a name, unless another assignment bears it now.
func (t *tree) unnameHome(id, name string) error {
	if !t.leadsTo(id, name) {
		return nil
	}
	return t.remove(path.Join(dirByName, name))
}

func (t *tree) leadsTo(id, name string) bool {
	target, err := t.root.Readlink(path.Join(dirByName, name))
	return err == nil && target == "../"+id
}
