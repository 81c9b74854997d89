package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/projections"
)

type doctor struct{}

func (*doctor) help() *cobra.Command {
	return &cobra.Command{
		Use: "doctor",
		Example: `  bindery doctor
  bindery doctor -o json`,
		Short: "Check the store, the ledger in it, and the settings",
		Long: `Looks at what a ledger rests on, and says of each thing whether it is well: the store's files, its
lock, the space on its disk, the configuration of the stream, the writer and its clock, versions,
rotations that are late, what is left on retired nodes, and which setting came from where. It goes
through the process that serves the store, where there is one. What cannot be looked at is skipped, and
why is said. The exit code is 3 if a check fails; a warning does not make it so.`,
	}
}

func (*doctor) flags(f *flags) { f.args() }

// The states of a check.
const (
	checkOK      = "ok"
	checkWarn    = "warn"
	checkFail    = "fail"
	checkSkipped = "skipped"
)

// doctorCheck is one thing that was looked at.
type doctorCheck struct {
	Code   string       `json:"code"`
	Status string       `json:"status"`
	What   string       `json:"what"`
	Why    string       `json:"why"`
	Fix    commands.Fix `json:"fix"`
}

func ok(code, what, why string) doctorCheck {
	return doctorCheck{code, checkOK, what, why, commands.Fix{}}
}

func warned(code, what, why string, fix commands.Fix) doctorCheck {
	return doctorCheck{code, checkWarn, what, why, fix}
}

func bad(code, what, why string, fix commands.Fix) doctorCheck {
	return doctorCheck{code, checkFail, what, why, fix}
}

// The checks that need the ledger, in the order in which they are shown.
var ledgerChecks = []string{"ledger", "writer", "fsync", "stream", "replicas", "foreign", "clock", "versions", "rotations", "retired_nodes"}

// skipped says that checks were not made.
func skipped(why string, codes ...string) []doctorCheck {
	out := make([]doctorCheck, len(codes))
	for i, code := range codes {
		out[i] = doctorCheck{code, checkSkipped, "not looked at", why, commands.Fix{}}
	}
	return out
}

// diagnosis is what was found.
type diagnosis = projections.List[doctorCheck]

func (v *doctor) run(ctx context.Context, c *cli, _ []string) error {
	d := v.examine(ctx, c)
	if ctx.Err() != nil {
		return ctx.Err() // what was not looked at was not for that
	}
	for i := range d.Items {
		k := &d.Items[i]
		k.What, k.Why, k.Fix = c.mask(k.What), c.mask(k.Why), c.textual(k.Fix)
	}
	data, err := marshal(d)
	if err != nil {
		return err
	}
	a, err := listAnswer(json.RawMessage(data), "", func(k doctorCheck) string { return k.Code }, []column[doctorCheck]{
		painted("STATUS", func(p *paper, k doctorCheck) string { return p.state(k.Status) }),
		plain("CHECK", func(k doctorCheck) string { return k.Code }),
		plain("WHAT", func(k doctorCheck) string { return k.What }),
		plain("WHY", func(k doctorCheck) string { return k.Why }),
		below(func(k doctorCheck) string { return k.Fix.Text() }),
	})
	if err != nil {
		return err
	}
	if err := c.ui.print(a); err != nil {
		return err
	}
	if slices.ContainsFunc(d.Items, func(k doctorCheck) bool { return k.Status == checkFail }) {
		return differs{}
	}
	return nil
}

// examine makes all checks that can be made.
func (v *doctor) examine(ctx context.Context, c *cli) diagnosis {
	d := diagnosis{Items: []doctorCheck{}}
	add := func(checks ...doctorCheck) { d.Items = append(d.Items, checks...) }
	if n, isRemote, err := c.remote(); isRemote {
		found := c.examineServer(ctx, n, err, &d)
		add(c.serverSetting(n), c.meshSetting(d.Mesh), c.outputSetting(), ok("setting_actor", "the actor is who logs in", "the grants in the ledger say who that is"))
		add(found...)
		return d
	}
	dir, err := c.storeDir()
	if err != nil {
		add(bad("setting_store", "no store is given", "neither --store nor BINDERY_STORE, XDG_DATA_HOME or HOME says where it is", do("doctor").With("--store", "DIR")))
		add(c.meshSetting(""), c.outputSetting(), c.actorSetting())
		add(skipped("there is no store", append([]string{"store", "lock", "space"}, ledgerChecks...)...)...)
		return d
	}
	add(c.storeSetting(dir))
	if !isStore(dir) {
		add(c.meshSetting(""), c.outputSetting(), c.actorSetting())
		none := noStore(dir)
		add(none)
		add(skipped(none.What, append([]string{"lock", "space"}, ledgerChecks...)...)...)
		return d
	}
	files, space := checkFiles(dir), checkSpace(dir)
	lock, found := c.examineLedger(ctx, dir, &d)
	add(c.meshSetting(d.Mesh), c.outputSetting(), c.actorSetting())
	add(files...)
	add(lock, space)
	add(found...)
	return d
}

// noStore says why there is no store in a directory.
func noStore(dir string) doctorCheck {
	if _, err := os.Stat(filepath.Join(dir, server.JetStreamStoreDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bad("store", "the store "+dir+" cannot be looked at", err.Error(), program("ls", "-ld", dir))
	}
	return bad("store", "no ledger in "+dir, "there is no store", do("init").With("--mesh", "NAME"))
}

// examineLedger opens the store, or asks who serves it.
func (c *cli) examineLedger(ctx context.Context, dir string, d *diagnosis) (lock doctorCheck, found []doctorCheck) {
	if err := checkStore(dir); err != nil {
		why := "a store is not opened while others can change it, or while it is another user's"
		return skipped(why, "lock")[0], skipped(why, ledgerChecks...)
	}
	s, err := c.openStore(ctx, dir, opening{find: openLog(dir, c.globals.mesh), whole: true})
	if err != nil {
		return unopened(dir, err)
	}
	defer func() { _ = s.close() }() // nothing was written
	if s.damage != nil {
		c.damaged = nil // it is one of the checks
		return unopened(dir, s.damage)
	}
	lock = ok("lock", "nobody else holds the store", "this process opened it for the moment")
	ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	if e, known := findEndpoint(dir); known && s.served() {
		lock = servedBy(e)
	}
	return lock, examineSession(ctx, s, d)
}

// examineServer asks who serves a mesh on a server.
func (c *cli) examineServer(ctx context.Context, n natsContext, err error, d *diagnosis) []doctorCheck {
	var s *session
	if err == nil {
		s, err = c.openRemote(ctx, n)
	}
	if err != nil {
		return unanswered(err)
	}
	defer func() { _ = s.close() }() // nothing was written
	ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	return append([]doctorCheck{checkRights(ctx, s.conn, n.URL)}, examineSession(ctx, s, d)...)
}

// checkRights tries whether this key may ask JetStream: then the server would put its
// answers wherever a request says, also where the ledger is kept.
func checkRights(ctx context.Context, nc *nats.Conn, url string) doctorCheck {
	const subject = "$JS.API.INFO"
	if err := nc.Publish(subject, nil); err == nil {
		err = nc.FlushWithContext(ctx)
		if err != nil {
			return skipped("the server does not answer", "rights")[0]
		}
	}
	if last := nc.LastError(); last != nil && strings.Contains(last.Error(), subject) {
		return ok("rights", "this key may send requests and nothing else", "the server refused it "+subject)
	}
	return bad("rights", "this key may ask more of the server than requests", "it could publish to "+subject+": who may, can have stored messages copied to where the ledger is kept",
		do("access permissions").With("--writer-nkey", "KEY").With("--answers-nkey", "KEY"))
}

// examineSession asks the writer how it is, and the ledger how that is.
func examineSession(ctx context.Context, s *session, d *diagnosis) []doctorCheck {
	in, err := s.client.Inspect(ctx)
	if err != nil && service.AsRefusal(err).Code != commands.Usage { // else it does not know the question
		return unanswered(err)
	}
	d.Mesh = s.mesh
	st, err := askStatus(ctx, s)
	if err != nil {
		return append(unanswered(err)[:1], checkInspection(in, nil, s.served())...)
	}
	d.Seq, d.Time = st.Seq, st.Time
	found := []doctorCheck{ok("ledger", "mesh "+st.Mesh+" is read whole, "+atSeq(st.Seq), "every event fits those before it, and their hashes")}
	return append(found, checkInspection(in, st, s.served())...)
}

// checkInspection judges what the writer says of itself, if it does, and what the
// ledger says; st is nil where that could not be asked.
func checkInspection(in service.Inspection, st *statusView, served bool) []doctorCheck {
	var out []doctorCheck
	told := in.PID != 0
	if told {
		out = append(out, checkWriter(in), checkSync(in), checkStream(in), checkReplicas(in), checkForeign(in))
	} else {
		out = skipped("who serves the ledger does not tell", "writer", "fsync", "stream", "replicas", "foreign", "clock", "versions")
	}
	if st == nil {
		if told {
			out = append(out, skipped("the ledger does not answer", "clock", "versions")...)
		}
		return append(out, skipped("the ledger does not answer", "rotations", "retired_nodes")...)
	}
	if told {
		out = append(out, checkClock(in.Now, st.Time), checkVersions(in, served))
	}
	return append(out, checkRotations(st), checkRetiredNodes(st))
}

func askStatus(ctx context.Context, s *session) (*statusView, error) {
	data, err := s.client.Ask(ctx, statusQuery)
	if err != nil {
		return nil, err
	}
	st := &statusView{}
	return st, json.Unmarshal(data, st)
}

// since is a span for people.
func since(d time.Duration) string { return d.Round(time.Second).String() }
