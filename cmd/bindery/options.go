package main

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bindery/commands"
	"bindery/events"
)

// defaultTimeout is how long one request may take: a group of commands is
// durable within milliseconds, on a disk in trouble within seconds.
const defaultTimeout = 30 * time.Second

// globals are the flags of every command.
type globals struct {
	store   string
	mesh    string
	server  string
	context string
	creds   string
	output  format
	quiet   bool
	color   colorMode
	noInput bool
	timeout time.Duration
	atLeast uint64
	anchor  anchorFlags
	asOf    string
}

func (g *globals) bind(f *pflag.FlagSet) {
	f.StringVar(&g.store, "store", "", "store `directory` (BINDERY_STORE; $XDG_DATA_HOME/bindery, else ~/.local/share/bindery)")
	f.StringVar(&g.server, "server", "", "`URL` of a server where a mesh is served, instead of a store (NATS_URL)")
	f.StringVar(&g.context, "context", "", "`name` of a NATS context that says which server (NATS_CONTEXT)")
	f.StringVar(&g.creds, "creds", "", "`file` with the nkey seed or the credentials to log in with there (NATS_CREDS)")
	f.StringVar(&g.mesh, "mesh", "", "the `name` of the mesh; the store must hold this one")
	f.VarP(&g.output, "output", "o", "`format`: table, wide, json, jsonl, yaml or name (BINDERY_OUTPUT)")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "say nothing of what was done; data and errors only")
	f.Var(&g.color, "color", "colour: auto, always or never")
	f.BoolVar(&g.noInput, "no-input", false, "never ask on the terminal")
	f.Uint64Var(&g.atLeast, "at-least", 0, "read from any instance that has reached sequence `N`, instead of the writer")
	f.StringVar(&g.asOf, "as-of", "", "read what was so at `T`: an instant, a date, a time ago, seq:N, or an event's id")
	g.anchor.bind(f)
	f.DurationVar(&g.timeout, "timeout", defaultTimeout, "how long one request may take")
}

// storeDir is where the store is.
func (c *cli) storeDir() (string, error) {
	dir := c.globals.store
	if dir == "" {
		dir = c.program.Getenv("BINDERY_STORE")
	}
	if dir != "" {
		dir = filepath.Clean(dir)
		return dir, notRestoring(dir)
	}
	if data := c.program.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) { // its specification: a relative one is ignored
		return filepath.Join(data, "bindery"), nil
	}
	home := c.program.Getenv("HOME")
	if home == "" {
		return "", &commands.Refusal{Code: commands.Usage, Message: "no store is given",
			Why: "neither --store nor BINDERY_STORE, XDG_DATA_HOME or HOME says where it is", Fix: do("status").With("--store", "DIR")}
	}
	return filepath.Join(home, ".local", "share", "bindery"), nil
}

// mayBeEmpty are the flags that an empty value means something for.
var mayBeEmpty = []string{"version", "feature"}

// checkEmpty refuses an empty value: the variable in it was not set, and what is meant
// is not what the flag's absence would do.
func (f *flags) checkEmpty() (err error) {
	f.cmd.Flags().Visit(func(flag *pflag.Flag) {
		empty := flag.Value.Type() == "string" && flag.Value.String() == ""
		if l, ok := flag.Value.(pflag.SliceValue); ok {
			empty = slices.Contains(l.GetSlice(), "")
		}
		if empty && err == nil && !slices.Contains(mayBeEmpty, flag.Name) {
			err = usage("--"+flag.Name+" is empty", "it would not be what its absence is; a variable in it may not be set", again().With("--"+flag.Name, "VALUE"))
		}
	})
	return err
}

// flags is a command's flag set with what its flags complete to.
type flags struct {
	*pflag.FlagSet
	cmd      *cobra.Command
	cli      *cli
	required []string
}

// must makes flags required.
func (f *flags) must(names ...string) {
	f.required = names
	for _, n := range names {
		f.Lookup(n).Usage += " (required)"
	}
}

func (f *flags) checkRequired() error {
	var lacking []string
	for _, n := range f.required {
		if !f.Changed(n) {
			lacking = append(lacking, "--"+n)
		}
	}
	if lacking == nil {
		return nil
	}
	return usage(f.cmd.CommandPath()+" needs "+strings.Join(lacking, " and "), "", helpOf(f.cmd.CommandPath()))
}

// names lets a flag's value be completed to the names of a noun.
func (f *flags) names(flag string, of lister) {
	_ = f.cmd.RegisterFlagCompletionFunc(flag, f.cli.completeTo(of))
}

// values lets a flag's value be completed to fixed words.
func (f *flags) values(flag string, words ...string) {
	_ = f.cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// args lets the arguments be completed to the names of a noun each.
func (f *flags) args(of ...lister) { f.cmd.ValidArgsFunction = f.cli.completeArgs(of) }

// write are the flags of every command that writes.
type write struct {
	dryRun    bool
	reason    string
	actor     string
	commandID string
	expectSeq uint64

	expects func() bool // --expect-seq was given; 0 is a sequence, too
	hasID   func() bool // --command-id was given; an empty one is none
}

func (w *write) bind(f *flags) {
	f.BoolVar(&w.dryRun, "dry-run", false, "decide and show everything, write nothing")
	f.StringVar(&w.reason, "reason", "", "`text` kept with every event, for whoever asks why")
	f.StringVar(&w.actor, "actor", "", "who (BINDERY_ACTOR; else the user's `name`@host)")
	f.StringVar(&w.commandID, "command-id", "", "a `ULID`; the same one again has no second effect")
	f.Uint64Var(&w.expectSeq, "expect-seq", 0, "refuse unless the ledger is at sequence `N`")
	f.values("reason")
	f.values("actor")
	f.values("command-id")
	w.expects = func() bool { return f.Changed("expect-seq") }
	w.hasID = func() bool { return f.Changed("command-id") }
}

// request completes a command to a request.
func (c *cli) request(w *write, cmd commands.Command) (commands.Request, error) {
	req := commands.Request{Command: cmd, Reason: w.reason, DryRun: w.dryRun}
	var err error
	if req.ID, err = c.commandID(w); err != nil {
		return req, err
	}
	if req.Actor, err = c.actor(w.actor); err != nil {
		return req, err
	}
	if w.expects() {
		req.ExpectSeq = &w.expectSeq
	}
	return req, nil
}

func (c *cli) commandID(w *write) (events.ID, error) {
	text := w.commandID
	if !w.hasID() {
		return c.program.NewID(), nil
	}
	id, err := events.ParseID(text)
	if err != nil {
		return id, usage("--command-id is no ULID", err.Error(), commands.Fix{})
	}
	return id, nil
}

// actor is who gives a command.
func (c *cli) actor(flag string) (string, error) {
	actor := flag
	if actor == "" {
		actor = c.program.Getenv("BINDERY_ACTOR")
	}
	if actor == "" {
		actor = osActor()
	}
	if err := events.CheckActor(actor); err != nil {
		return "", usage("the actor cannot be recorded", err.Error(), again().With("--actor", "NAME"))
	}
	return actor, nil
}

// unknownUser stands for a user whom the system does not know.
const unknownUser = "unknown"

// osActor is the system's user and host.
func osActor() string {
	name, host := unknownUser, "localhost"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
