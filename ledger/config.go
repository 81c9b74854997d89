package ledger

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"bindery/events"
)

// streamPrefix and the mesh's name make the stream's name.
const streamPrefix = "bindery-"

// StreamName is the name of the stream that keeps the ledger of mesh.
func StreamName(mesh string) string { return streamPrefix + mesh }

// duplicates is the window in which the server looks for a repeated
// Nats-Msg-Id. The ledger remembers command ids itself; the server reads each
// message of the window when it opens a stream (server/stream.go, rebuildDedupe).
const duplicates = 100 * time.Millisecond

// streamConfig is what the stream of a ledger must be like.
func streamConfig(mesh string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               StreamName(mesh),
		Description:        "bindery: the ledger of mesh " + mesh,
		Subjects:           []string{events.StreamSubjects(mesh)},
		Retention:          jetstream.LimitsPolicy,
		Storage:            jetstream.FileStorage,
		Discard:            jetstream.DiscardNew, // should there ever be a limit, refuse rather than forget
		MaxConsumers:       -1,
		MaxMsgs:            -1,
		MaxBytes:           -1,
		MaxMsgsPerSubject:  -1,
		MaxMsgSize:         -1,
		Duplicates:         duplicates,
		DenyDelete:         true,
		DenyPurge:          true,
		AllowDirect:        true,
		AllowAtomicPublish: true,
	}
}

// verifyConfig compares got with what streamConfig asks for. Replicas,
// placement, compression, description and metadata are the operator's.
func verifyConfig(mesh string, got jetstream.StreamConfig) error {
	want := streamConfig(mesh)
	e := &ConfigError{Stream: want.Name}
	check := func(name string, want, found any) {
		if !reflect.DeepEqual(want, found) {
			e.Settings = append(e.Settings, Setting{Name: name, Want: show(want), Found: show(found)})
		}
	}
	check("name", want.Name, got.Name)
	check("subjects", want.Subjects, got.Subjects)
	check("retention", want.Retention, got.Retention)
	check("storage", want.Storage, got.Storage)
	check("discard", want.Discard, got.Discard)
	check("discard_new_per_subject", false, got.DiscardNewPerSubject)
	check("max_consumers", want.MaxConsumers, got.MaxConsumers)
	check("max_msgs", want.MaxMsgs, got.MaxMsgs)
	check("max_bytes", want.MaxBytes, got.MaxBytes)
	check("max_age", want.MaxAge, got.MaxAge)
	check("max_msgs_per_subject", want.MaxMsgsPerSubject, got.MaxMsgsPerSubject)
	check("max_msg_size", want.MaxMsgSize, got.MaxMsgSize)
	check("duplicate_window", want.Duplicates, got.Duplicates)
	check("no_ack", false, got.NoAck)
	check("sealed", false, got.Sealed)
	check("deny_delete", true, got.DenyDelete)
	check("deny_purge", true, got.DenyPurge)
	check("allow_rollup_hdrs", false, got.AllowRollup)
	check("allow_direct", true, got.AllowDirect)
	check("allow_atomic", true, got.AllowAtomicPublish)
	check("allow_batched", false, got.AllowBatchPublish)
	check("allow_msg_ttl", false, got.AllowMsgTTL)
	check("subject_delete_marker_ttl", time.Duration(0), got.SubjectDeleteMarkerTTL)
	check("allow_msg_counter", false, got.AllowMsgCounter)
	check("allow_msg_schedules", false, got.AllowMsgSchedules)
	check("persist_mode", jetstream.DefaultPersistMode, got.PersistMode)
	check("mirror", false, got.Mirror != nil)
	check("sources", 0, len(got.Sources))
	check("republish", false, got.RePublish != nil)
	check("subject_transform", false, got.SubjectTransform != nil)
	if got.FirstSeq > 1 {
		check("first_seq", uint64(1), got.FirstSeq)
	}
	if len(e.Settings) > 0 {
		return e
	}
	return nil
}

func show(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case []string:
		return strings.Join(quoted(v), ", ")
	}
	return fmt.Sprint(v)
}
