package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"bindery/events"
)

// A backup is a file that somebody may have written who wants more than a ledger: what
// stands in it is published. So an event goes nowhere but to a subject of the ledger's
// own stream, with headers that no server acts on, and a foreign message is not
// published as it was at all.

// foreignSubject is where foreign messages of a backup lie in a restored stream.
func foreignSubject(mesh string) string { return events.SubjectRoot + "." + mesh + ".foreign" }

// maxForeign is the greatest foreign message that a restore keeps wholly, in bytes of
// its line in the backup.
const maxForeign = 64 << 10

// neutral is what a restore puts in the place of a foreign message: a message with no
// header, on a subject of no event, that holds the line of the backup; of a long one its
// size and SHA-256.
func neutral(mesh string, m *events.Record) (*events.Record, error) {
	if m.Subject == foreignSubject(mesh) && len(m.Header) == 0 && len(m.Data) <= maxForeign {
		return m, nil // an earlier restore has made it
	}
	var line bytes.Buffer
	if err := encodeLine(&line, messageLine(m, true)); err != nil {
		return nil, err
	}
	data := bytes.TrimSuffix(line.Bytes(), []byte("\n"))
	if len(data) > maxForeign {
		sum := sha256.Sum256(data)
		data = fmt.Appendf(nil, `{"seq":%d,"foreign":true,"bytes":%d,"sha256":"%s"}`, m.Seq, len(data), hex.EncodeToString(sum[:]))
	}
	return &events.Record{Seq: m.Seq, Subject: foreignSubject(mesh), Header: map[string][]string{}, Data: data}, nil
}

// publishable reports why the line of an event must not be published.
func publishable(mesh string, r *events.Record) error {
	in, t, _, err := events.ParseSubject(r.Subject)
	switch {
	case err != nil:
		return err
	case in != mesh:
		return fmt.Errorf("its subject is of the mesh %q", in)
	case strings.ContainsFunc(string(t.Entity)+t.Name, notLiteral):
		return fmt.Errorf("subject %q: not literal", r.Subject)
	}
	for name := range r.Header {
		if !sendable(name) || strings.EqualFold(name[:min(5, len(name))], "Nats-") {
			return fmt.Errorf("header %q: a server could act on it", name)
		}
	}
	return nil
}

// notLiteral reports whether a rune stands in no name of an entity or event.
func notLiteral(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
