package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

var statusQuery = commands.Status{}

// inspector tells how a writer of this process and its server are.
// synced says whether that syncs before it acknowledges; nil: that cannot be seen.
func inspector(h *handler.Handler, log *ledger.Log, synced *bool, nc *nats.Conn, clock func() time.Time) func(context.Context) (service.Inspection, error) {
	return func(ctx context.Context) (service.Inspection, error) {
		ctx, cancel := context.WithTimeout(ctx, probeWait)
		defer cancel()
		stream, err := log.Inspect(ctx)
		if err != nil {
			return service.Inspection{}, err
		}
		in := service.Inspection{PID: os.Getpid(), Version: serviceVersion, Commit: commit(), Go: runtime.Version(), NATS: nc.ConnectedServerVersion(),
			Now: clock().UTC(), Synced: synced, Stream: stream, Foreign: log.Foreign().Open}
		if err := writerTrouble(h.Health()); err != nil {
			in.Trouble = err.Error()
		}
		return in, nil
	}
}

// servedBy says who serves a store, and where: never with which key.
func servedBy(e endpoint) doctorCheck {
	why := "it listens at " + e.URL
	if e.HTTP != "" {
		why += " and tells of its health at " + e.HTTP
	}
	return ok("lock", fmt.Sprintf("process %d serves the store", e.PID), why)
}

// unopened says why a store could not be opened, and what is not known for it.
func unopened(dir string, err error) (lock doctorCheck, found []doctorCheck) {
	lock = ok("lock", "nobody else holds the store", "")
	r := service.AsRefusal(err)
	var (
		config *ledger.ConfigError
		newer  *events.UnknownTypeError
		old    *ledger.VersionError
		path   *os.PathError
	)
	failed := bad("ledger", r.Message, r.Why, r.Fix)
	switch {
	case r.Code == commands.StoreLocked:
		return bad("lock", r.Message, r.Why, r.Fix), skipped("another process holds the store and does not answer", ledgerChecks...)
	case errors.As(err, &config):
		failed = checkStream(service.Inspection{Stream: ledger.Inspection{Stream: config.Stream, Settings: config.Settings}})
	case errors.As(err, &newer):
		failed = bad("versions", fmt.Sprintf("the ledger has an event of type %q", newer.Type), "a later version of bindery wrote it; this is "+serviceVersion,
			do("version"))
	case errors.As(err, &old):
		failed = bad("versions", "the server has version "+old.Found, "a ledger needs "+old.Need+" or later", do("version"))
	case errors.As(err, &path), r.Code == commands.StoreUnusable:
		lock = skipped("the store cannot be opened", "lock")[0]
	}
	found = skipped("the store cannot be opened", ledgerChecks...)
	found[slices.Index(ledgerChecks, failed.Code)] = failed
	return lock, found
}

// unanswered says that a store is open and does not answer.
func unanswered(err error) []doctorCheck {
	r := service.AsRefusal(err)
	return append([]doctorCheck{bad("ledger", r.Message, r.Why, r.Fix)}, skipped("the ledger does not answer", ledgerChecks[1:]...)...)
}

func checkWriter(in service.Inspection) doctorCheck {
	if in.Trouble != "" {
		return bad("writer", "nothing can be stored", in.Trouble, advise("journalctl -u bindery"))
	}
	return ok("writer", "commands can be stored", "")
}

func checkSync(in service.Inspection) doctorCheck {
	switch {
	case in.Synced == nil:
		return warned("fsync", "whether the server syncs cannot be seen", `its configuration needs sync_interval: always in the block jetstream, `+
			"else what was acknowledged may be lost when the power fails", commands.Fix{})
	case !*in.Synced:
		return bad("fsync", "the server acknowledges before it syncs", "what was acknowledged may be lost when the power fails", commands.Fix{})
	}
	return ok("fsync", "what is acknowledged is on the disk", "the server syncs always")
}

func checkStream(in service.Inspection) doctorCheck {
	if n := len(in.Stream.Settings); n > 0 {
		texts := make([]string, n)
		for i, s := range in.Stream.Settings {
			texts[i] = fmt.Sprintf("%s is %s, need %s", s.Name, s.Found, s.Want)
		}
		return bad("stream", "the configuration of stream "+in.Stream.Stream+" was changed", strings.Join(texts, "; "), program("nats", "stream", "edit", in.Stream.Stream))
	}
	return ok("stream", "stream "+in.Stream.Stream+" is as it must be", fmt.Sprintf("nothing may be deleted, no limits, storage %s; %s, %s",
		in.Stream.Storage, plural(int(in.Stream.Messages), "message", "messages"), size(in.Stream.Bytes)))
}

func checkReplicas(in service.Inspection) doctorCheck {
	n := in.Stream.Replicas
	what := plural(n, "replica", "replicas")
	switch {
	case len(in.Stream.Lagging) > 0:
		return warned("replicas", what+", not all of them there", "offline or behind: "+strings.Join(in.Stream.Lagging, ", "), program("nats", "stream", "info", in.Stream.Stream))
	case n == 1:
		return ok("replicas", what, "this disk has the only copy")
	case n%2 == 0:
		return warned("replicas", what, "an even number survives no more than one less", program("nats", "stream", "edit", in.Stream.Stream, "--replicas", strconv.Itoa(n+1)))
	}
	return ok("replicas", what, "")
}

func checkForeign(in service.Inspection) doctorCheck {
	if in.Foreign > 0 {
		return warned("foreign", plural(int(in.Foreign), "message", "messages")+" in the stream that bindery did not write",
			"they are skipped; who wrote them may write to the stream", do("status"))
	}
	return ok("foreign", "every message in the stream is an event", "")
}

// clockSlack is how far the writer's clock may be behind the last event: beyond
// it the writer restarts time.
const clockSlack = time.Minute

func checkClock(now, last time.Time) doctorCheck {
	switch behind := last.Sub(now); {
	case behind > clockSlack:
		return bad("clock", "the writer's clock is "+since(behind)+" behind the last event", "the next command would be dated before those it follows", program("timedatectl", "status"))
	case behind > 0:
		return warned("clock", "the writer's clock is "+since(behind)+" behind the last event", "until then commands are dated like that event", program("timedatectl", "status"))
	}
	return ok("clock", "the writer's clock is not behind the last event", "that was at "+last.UTC().Format(time.RFC3339))
}

func checkVersions(in service.Inspection, served bool) doctorCheck {
	what := fmt.Sprintf("bindery %s, nats-server %s, %s", in.Version, in.NATS, in.Go)
	if served && (in.Version != serviceVersion || in.Commit != commit() || in.NATS != server.VERSION || in.Go != runtime.Version()) {
		return warned("versions", "the serving process is another version than this one: "+what,
			fmt.Sprintf("this is bindery %s, commit %s, nats-server %s, %s; that is commit %s", serviceVersion, orDash(commit()), server.VERSION, runtime.Version(), orDash(in.Commit)),
			program("systemctl", "restart", "bindery"))
	}
	return ok("versions", what, "it knows every type of event in the ledger")
}

func checkRotations(st *statusView) doctorCheck {
	return attended("rotations", st, "no rotation is overdue or stuck", "rotations are overdue, or wait for somebody", do("status"), "overdue", string(projections.StepStuck))
}

func checkRetiredNodes(st *statusView) doctorCheck {
	return attended("retired_nodes", st, "nothing is left on retired nodes", "providers or assignments are left on retired nodes", do("status"), "node_retired")
}

// mostNamed is how many things a check names.
const mostNamed = 3

// attended is a check of what status says.
func attended(code string, st *statusView, fine, what string, fix commands.Fix, codes ...string) doctorCheck {
	var texts []string
	for _, a := range st.Attention {
		if !slices.Contains(codes, a.Code) {
			continue
		}
		if texts = append(texts, a.What+": "+a.Why); len(texts) == 1 {
			fix = a.Fix
		} else {
			fix = do("status")
		}
	}
	switch n := len(texts); {
	case n == 0:
		return ok(code, fine, "")
	case n > mostNamed:
		texts = append(texts[:mostNamed], fmt.Sprintf("%d more", n-mostNamed))
	}
	return warned(code, what, strings.Join(texts, "; "), fix)
}
