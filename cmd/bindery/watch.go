package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/subscriber"
	"bindery/events"
	"bindery/projections"
)

type watch struct {
	provider string
	node     string
	bindings []string
	from     string
	initial  bool
	exec     bool
	cursor   string
	once     bool
}

func (*watch) help() *cobra.Command {
	return &cobra.Command{
		Use: "watch [--exec COMMAND ARGUMENT…]",
		Example: `  bindery watch
  bindery watch --initial --node alpha
  bindery watch --from 2h --provider pg-alpha -o jsonl
  bindery watch --binding wiki/db --cursor /var/lib/wiki/cursor --exec /usr/local/bin/configure wiki`,
		Short: "Tell what changes for bindings, as it does",
		Long: `Tells what becomes different for bindings: a line each, with sequence, time, kind, slot and what; with
-o json or jsonl the change itself, a line each. It begins with what comes next, or with --from: an
instant in RFC 3339, a date, a time ago (2h, 3d), seq:N, or an event's id. A mark says when it has caught
up. Servers that restart and connections that are lost leave nothing out and repeat nothing. It needs a
bindery serve, unless it ends by --once. The agent of a node is told of the bindings there.

--exec runs a command for each change, without a shell, one at a time, in order, with the change as JSON
on standard input and BINDERY_KIND, BINDERY_SEQ, BINDERY_MESH, BINDERY_ASSIGNMENT, BINDERY_SLOT,
BINDERY_BINDING, BINDERY_NODE, BINDERY_PROVIDER and BINDERY_GENERATION in the environment. Everything
after it is the command: put it last. Where the command has a flag that is called as one of watch, write
--exec -- COMMAND. What is there at first is passed on only with --initial. A command
that fails ends the watching, with exit code 1.

--cursor keeps in a file up to where it came, after each command of the ledger that is handled, and goes
on from there: what was not handled comes again, so that each change is handled at least once. The file
comes before --from and --initial. A ledger that was restored to an earlier state is an error: decide
what to do, and remove the file.`,
		Args: cobra.ArbitraryArgs,
	}
}

func (v *watch) flags(f *flags) {
	f.SetInterspersed(false) // what follows the first argument is the command's
	f.StringVar(&v.provider, "provider", "", "only what is bound to a `provider`, or runs or logs in with it")
	f.StringVar(&v.node, "node", "", "only consumers on a `node`")
	f.StringArrayVar(&v.bindings, "binding", nil, "only a slot, `ASSIGNMENT/SLOT`; may be given more than once")
	f.StringVar(&v.from, "from", "", "begin at `T`")
	f.BoolVar(&v.initial, "initial", false, "tell first what is there")
	f.BoolVar(&v.exec, "exec", false, "run the command that follows for each change")
	f.StringVar(&v.cursor, "cursor", "", "keep in a `file` up to where it came, and go on from there")
	f.BoolVar(&v.once, "once", false, "end when it has caught up")
	f.names("provider", providerNames)
	f.names("node", nodeNames)
	f.names("binding", slotNames)
	f.values("from")
}

func (v *watch) run(ctx context.Context, c *cli, args []string) error {
	w := &watchRun{c: c, v: v, command: args}
	switch {
	case v.exec && len(args) == 0:
		return usage("--exec is followed by no command", "everything after it is the command and its arguments", theSame("watch", "--exec", "cat"))
	case !v.exec && len(args) > 0:
		return usage(fmt.Sprintf("bindery watch takes no argument %q", clip(args[0])), "a command to run stands after --exec", do("watch").With("--help"))
	}
	if flag := v.swallowed(c, args); flag != "" {
		return usage(flag+" stands after --exec, and would go to "+args[0], "everything after --exec is the command's: put "+flag+" before it, or write -- after --exec where the command is to have it",
			do("watch").With("--help"))
	}
	if v.cursor != "" {
		w.file = &cursorFile{path: v.cursor}
		if err := w.file.read(); err != nil {
			return err
		}
	}
	return c.with(ctx, func(s *session) error { return w.start(ctx, s) })
}

// swallowed is a flag of this program's that stands among the arguments of the command to
// run, and was probably meant for this one; "" for none. After "--" all are the command's.
func (v *watch) swallowed(c *cli, command []string) string {
	if at := len(c.args) - len(command); at > 0 && c.args[at-1] == "--" {
		return ""
	}
	for _, arg := range command {
		name, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(name, "--") && name != "--" && flagOf(c.given(), name) != nil {
			return name
		}
	}
	return ""
}

// watchRun is one run of watch.
type watchRun struct {
	c       *cli
	v       *watch
	command []string // of --exec

	me   commands.WhoAmIView
	o    subscriber.Options
	last subscriber.Cursor // what came last, handled
	told bool              // that it has caught up
	file *cursorFile       // nil without --cursor
}

// start finds out who asks for what, and watches.
func (w *watchRun) start(ctx context.Context, s *session) error {
	if !s.served() && !w.v.once {
		return refusal(commands.NeedsServe, "nothing would ever come",
			"nobody else can write while this process holds the store: no bindery serve runs on it", do("serve"))
	}
	if err := w.prepare(ctx, s); err != nil {
		return err
	}
	p, err := w.c.patientWith(s)
	if err != nil {
		return err
	}
	defer p.close()
	for {
		err := w.follow(ctx, p.now)
		if w.file != nil {
			if saved := w.file.flush(); err == nil {
				err = saved
			}
		}
		switch {
		case ctx.Err() != nil:
			return w.stopped()
		case !errors.Is(err, nats.ErrConnectionClosed) && !isUnreachable(err):
			return w.explain(err)
		case !p.now.served():
			return err
		}
		if w.last.Seq != 0 {
			at := w.last
			w.o.Cursor = &at
		}
		if !p.another(ctx) {
			if p.err != nil {
				return p.err
			}
			return w.stopped()
		}
	}
}

// prepare asks who this is, and makes names ids: they may change while it
// watches.
func (w *watchRun) prepare(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, w.c.globals.timeout)
	defer cancel()
	if err := askInto(ctx, s, commands.WhoAmI{}, &w.me); err != nil {
		return err
	}
	w.o.Initial = w.v.initial
	if err := w.filter(ctx, s); err != nil {
		return err
	}
	if w.file != nil && w.file.there {
		if w.file.Mesh != s.mesh {
			return refusal(commands.WrongMesh, fmt.Sprintf("the cursor in %s is of mesh %s", w.file.path, clip(w.file.Mesh)),
				"the mesh watched is "+s.mesh, do("watch").With("--mesh", s.mesh).With("--cursor", "OTHER-FILE"))
		}
		at := w.file.Cursor
		w.o.Cursor, w.last = &at, at
		return nil
	}
	if w.v.from == "" {
		return nil
	}
	if w.byDocuments() {
		return usage("an agent cannot begin in the past", "it is told of changes by the documents of its node, which say what is so now", do("watch").With("--initial"))
	}
	return w.begin(ctx, s)
}

// begin finds the sequence that --from means.
func (w *watchRun) begin(ctx context.Context, s *session) error {
	q, err := logFrom(w.v.from, w.c.program.Clock(), do("watch").With("--from", "2h"))
	if err != nil {
		return err
	}
	if q.Event == "" && q.Time == "" {
		w.o.From = max(q.First, 1)
		return nil
	}
	q.Limit = 1
	page, err := s.client.Log(ctx, q)
	if err != nil {
		return err
	}
	w.o.From = page.Seq + 1
	if len(page.Items) > 0 {
		w.o.From = page.Items[0].Seq
	}
	return nil
}

// byDocuments reports whether changes are told by the documents of a node.
func (w *watchRun) byDocuments() bool { return w.me.Role == events.RoleAgent }

// filter resolves what the flags name.
func (w *watchRun) filter(ctx context.Context, s *session) error {
	f := &w.o.Filter
	if w.byDocuments() && w.me.NodeID != nil {
		f.Node = *w.me.NodeID
	}
	if w.v.provider != "" {
		var p projections.ProviderView
		if err := askInto(ctx, s, commands.ShowProvider{Provider: w.v.provider}, &p); err != nil {
			return err
		}
		f.Provider = p.ID
	}
	if w.v.node != "" {
		var n projections.NodeView
		if err := askInto(ctx, s, commands.ShowNode{Node: w.v.node}, &n); err != nil {
			return err
		}
		if w.byDocuments() && n.ID != f.Node {
			return refusal(commands.NotPermitted, w.me.Name+" is not told of node "+n.Name, "it is the agent of "+w.me.Node, do("watch").With("--node", w.me.Node))
		}
		f.Node = n.ID
	}
	for _, slot := range w.v.bindings {
		var b projections.BindingView
		if err := askInto(ctx, s, commands.ShowBinding{Slot: slot}, &b); err != nil {
			return err
		}
		if b.ID == nil {
			assignment, _, _ := strings.Cut(slot, "/")
			return refusal(commands.BindingNotFound, "nothing has served "+slot+" yet", "it has no binding to watch", do("assignment resolve", assignment))
		}
		f.Bindings = append(f.Bindings, *b.ID)
	}
	return nil
}

// items are what comes, the one way or the other.
func (w *watchRun) items(ctx context.Context, s *session) iter.Seq2[subscriber.Item, error] {
	if w.byDocuments() {
		return subscriber.Documents(ctx, s.client, w.o)
	}
	return subscriber.Stream(ctx, s.client, w.o)
}

// follow handles what comes on one session; nil at the end of --once.
func (w *watchRun) follow(ctx context.Context, s *session) error {
	for item, err := range w.items(ctx, s) {
		if err != nil {
			return err
		}
		if err := w.handle(ctx, item); err != nil {
			return err
		}
		if item.Cursor.Seq != 0 {
			w.last = item.Cursor
			if w.file != nil {
				if err := w.file.keep(s.mesh, item.Cursor, w.v.exec || item.CaughtUp); err != nil {
					return err
				}
			}
		}
		if item.CaughtUp && w.v.once {
			return nil
		}
	}
	return ctx.Err()
}

// handle shows an item, or runs the command for it.
func (w *watchRun) handle(ctx context.Context, item subscriber.Item) error {
	var change projections.Change
	switch {
	case item.CaughtUp:
		if w.told {
			return nil // on an earlier connection
		}
		w.told = true
		return w.mark(item.Seq)
	case item.Document != nil:
		change = projections.Present(item.Document)
	default:
		change = *item.Change
	}
	if w.v.exec {
		return w.execute(ctx, &change)
	}
	return w.line(&change)
}

// explain makes a refusal of what ended the watching.
func (w *watchRun) explain(err error) error {
	var r *subscriber.RestoredError
	if errors.As(err, &r) {
		fix := do("watch").With("--initial")
		if w.file != nil {
			fix = program("rm", w.file.path)
		}
		return refusal(commands.LedgerRestored, fmt.Sprintf("sequence %d is not what was read there", r.Cursor.Seq),
			r.Why+": the ledger was restored to an earlier state, or is another one", fix)
	}
	return err
}

// stopped says after Ctrl-C how to go on.
func (w *watchRun) stopped() error {
	return refusal(commands.Interrupted, "stopped watching", "nothing else is stopped", w.resume())
}

// resume is the command that goes on where this one stopped.
func (w *watchRun) resume() commands.Fix {
	args := shown(w.c.args)
	at, rest := len(args)-len(w.command), []string(nil)
	if w.v.exec {
		at-- // --exec
		if at > 0 && args[at] == "--" {
			at--
		}
		rest = append([]string{"--exec"}, w.command...)
	}
	args = args[:max(at, 0)]
	if w.file == nil && !w.byDocuments() && w.last.Seq > 0 {
		args = slices.DeleteFunc(args, func(a string) bool { return a == "--initial" }) // it was told
		args = append(w.c.without(args, "--from"), "--from", fmt.Sprintf("seq:%d", w.last.Seq+1))
	}
	return theSame(append(args, rest...)...)
}
