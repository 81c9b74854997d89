package ledger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"bindery/events"
)

// A backup is JSON Lines, each line one JSON object:
//
//	{"bindery":"backup","version":1,"mesh":…,"mesh_id":…,"seq":…,"chain":…,"time":…}
//	{"seq":1,"subject":…,"headers":{NAME:[VALUE,…],…},"data":…}
//	…
//	{"checkpoint":{"mesh_id":…,"seq":…,"chain":…,"note":…},"sha256":…}
//
// The first says of which ledger, up to which event, with which chain value there,
// and the time of that event. Then comes each message of the stream from sequence 1
// on, in order and without a gap, up to that event. The last line repeats the place,
// in note signed (see Checkpoint) where there was a key, and has the SHA-256 of all
// lines before it.
//
// A message is there as it is stored, without the server's own headers ("Nats-…").
// One that is no part of the ledger has "foreign":true. What is not UTF-8 stands in
// base64 under the name with "_base64"; of headers, each name and each value.
// Two backups up to the same event have the same bytes.

// backupVersion is the version of the format.
const backupVersion = 1

// BackupHead says what a backup is of: its first line.
type BackupHead struct {
	Mesh   string
	MeshID events.ID
	Seq    uint64       // of the last event
	Chain  events.Chain // at Seq
	Time   string       // of the last event, as it stands in it
}

// headLine is the first line of a backup.
type headLine struct {
	Kind    string    `json:"bindery"`
	Version int       `json:"version"`
	Mesh    string    `json:"mesh"`
	MeshID  events.ID `json:"mesh_id"`
	Seq     uint64    `json:"seq"`
	Chain   string    `json:"chain"`
	Time    string    `json:"time"`
}

// backupKind tells a backup from other files.
const backupKind = "backup"

func (h BackupHead) line() headLine {
	return headLine{Kind: backupKind, Version: backupVersion, Mesh: h.Mesh, MeshID: h.MeshID, Seq: h.Seq, Chain: h.Chain.String(), Time: h.Time}
}

// Position is the place in the ledger that the backup reaches.
func (h BackupHead) Position() Position {
	return Position{Seq: h.Seq, Chain: h.Chain, Mesh: h.MeshID}
}

// Checkpoint is what can be signed of a backup.
func (h BackupHead) Checkpoint() Checkpoint {
	return Checkpoint{Mesh: h.MeshID, MeshName: h.Mesh, Seq: h.Seq, Chain: h.Chain}
}

// backupMessage is the line of a message.
type backupMessage struct {
	Seq           uint64              `json:"seq"`
	Foreign       bool                `json:"foreign,omitempty"`
	Subject       string              `json:"subject,omitempty"`
	SubjectBase64 []byte              `json:"subject_base64,omitempty"`
	Headers       map[string][]string `json:"headers,omitempty"`
	HeadersBase64 map[string][][]byte `json:"headers_base64,omitempty"`
	Data          *string             `json:"data,omitempty"`
	DataBase64    []byte              `json:"data_base64,omitempty"`
}

// backupEnd is the last line.
type backupEnd struct {
	Checkpoint backupCheckpoint `json:"checkpoint"`
	SHA256     string           `json:"sha256"`
}

type backupCheckpoint struct {
	MeshID events.ID `json:"mesh_id"`
	Seq    uint64    `json:"seq"`
	Chain  string    `json:"chain"`
	Note   string    `json:"note,omitempty"`
}

// messageLine makes the line of a record. Of a foreign message it leaves out headers
// with a name that no client can send again.
func messageLine(r *events.Record, foreign bool) backupMessage {
	m := backupMessage{Seq: r.Seq, Foreign: foreign}
	if utf8.ValidString(r.Subject) {
		m.Subject = r.Subject
	} else {
		m.SubjectBase64 = []byte(r.Subject)
	}
	headers := r.Header
	if foreign {
		headers = maps.Clone(headers)
		maps.DeleteFunc(headers, func(name string, _ []string) bool { return !sendable(name) })
	}
	if isText(headers) {
		m.Headers = headers
	} else {
		m.HeadersBase64 = make(map[string][][]byte, len(headers))
		for name, values := range headers {
			coded := make([][]byte, len(values))
			for i, v := range values {
				coded[i] = []byte(v)
			}
			m.HeadersBase64[base64.StdEncoding.EncodeToString([]byte(name))] = coded
		}
	}
	switch {
	case len(r.Data) == 0:
	case utf8.Valid(r.Data):
		text := string(r.Data)
		m.Data = &text
	default:
		m.DataBase64 = r.Data
	}
	return m
}

func isText(headers map[string][]string) bool {
	for name, values := range headers {
		if !utf8.ValidString(name) || slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			return false
		}
	}
	return true
}

// sendable reports whether a client can send a header of that name
// (nats.go, isHeaderKeyValid).
func sendable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' })
}

// record is the inverse of messageLine.
func (m *backupMessage) record() (events.Record, error) {
	r := events.Record{Seq: m.Seq, Subject: m.Subject, Header: m.Headers, Data: m.DataBase64}
	if m.SubjectBase64 != nil {
		r.Subject = string(m.SubjectBase64)
	}
	if m.Data != nil {
		r.Data = []byte(*m.Data)
	}
	if r.Header == nil {
		r.Header = make(map[string][]string, len(m.HeadersBase64))
	}
	for coded, values := range m.HeadersBase64 {
		name, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			return r, fmt.Errorf("a header's name: %w", err)
		}
		for _, v := range values {
			r.Header[string(name)] = append(r.Header[string(name)], string(v))
		}
	}
	return r, nil
}

// encodeLine writes v as one line: no HTML escapes, so that a payload stays
// readable.
func encodeLine(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// decodeLine reads what encodeLine writes, and no other spelling of it. A member
// that is not known belongs to a later version of the format.
func decodeLine(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	var again bytes.Buffer
	if err := encodeLine(&again, v); err != nil {
		return err
	}
	if !bytes.Equal(again.Bytes(), line) {
		return errors.New("it is spelt otherwise than a backup is")
	}
	return nil
}
