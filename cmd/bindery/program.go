package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/events"
)

// Streams are where a run reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Program is the command line as a value. What it takes from around it are
// fields, so that a test drives it like any other value.
type Program struct {
	Getenv func(string) string
	Clock  func() time.Time
	NewID  func() events.ID // mints the ids of commands, entities and events
}

// NewProgram is the program in its usual surroundings.
func NewProgram() *Program {
	return &Program{Getenv: os.Getenv, Clock: time.Now, NewID: handler.NewIDs(time.Now)}
}

// Run carries out one command line and returns the exit code. When ctx ends, it
// stops in order and returns 130.
func (p *Program) Run(ctx context.Context, args []string, s Streams) int {
	c := &cli{program: p, streams: s, args: args, interrupted: ctx}
	root := c.root()
	c.tree = root
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	cmd, err := root.ExecuteContextC(ctx)
	return c.exit(cmd, err)
}

// cli is one run of the program.
type cli struct {
	program *Program
	streams Streams
	args    []string
	tree    *cobra.Command // of all commands; nil before it is asked for
	globals globals
	ui      *ui    // set once the flags are read
	path    string // of the command that runs: "bindery node list"

	contextURLs []string // of servers, as NATS contexts and join files name them

	damaged *damage // of the ledger that was read: whatever was printed, the exit code is 9

	// interrupted ends when the user stops the run; what is derived from it ends
	// at --timeout, too.
	interrupted context.Context
}

// verb is one command of the command line. Its flags are its fields.
type verb interface {
	help() *cobra.Command // Use, Example, Short and Long
	flags(f *flags)
	run(ctx context.Context, c *cli, args []string) error
}

// failed marks an error that came from running a verb, and not from reading the
// command line.
type failed struct{ err error }

func (f failed) Error() string { return f.err.Error() }
func (f failed) Unwrap() error { return f.err }

// differs ends a run with exit code 3 and says nothing more: what differs is in
// the output.
type differs struct{}

func (differs) Error() string { return "differs" }

// command makes the cobra command of a verb.
func (c *cli) command(v verb) *cobra.Command {
	cmd := v.help()
	f := &flags{FlagSet: cmd.Flags(), cmd: cmd, cli: c}
	v.flags(f)
	takeOnce(cmd.Flags())
	cmd.Aliases = aliases[cmd.Name()]
	if cmd.Args == nil {
		cmd.Args = argsOf(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.path = cmd.CommandPath()
		if err := f.checkEmpty(); err != nil {
			return err
		}
		if err := f.checkRequired(); err != nil {
			return err
		}
		if c.globals.timeout <= 0 {
			return usage("--timeout is not more than 0", "what is sent without waiting for its answer has an outcome nobody knows", helpOf(cmd.CommandPath()))
		}
		var err error
		if c.ui, err = c.newUI(); err != nil {
			return err
		}
		if err := c.checkAsOf(cmd); err != nil {
			return err
		}
		if err := v.run(cmd.Context(), c, args); err != nil {
			return failed{err}
		}
		return nil
	}
	return cmd
}

// group makes the command of a noun, which does nothing itself.
func (c *cli) group(use, example, short string, verbs ...verb) *cobra.Command {
	cmd := &cobra.Command{Use: use, Example: example, Short: short, Args: cobra.ArbitraryArgs, RunE: groupRun}
	for _, v := range verbs {
		cmd.AddCommand(c.command(v))
	}
	return cmd
}

// groupRun shows a group's help, or says that there is no such command.
func groupRun(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownCommand(cmd, args[0])
}

// root makes the whole tree.
func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use: "bindery",
		Example: `  bindery init --mesh home
  bindery apply -f fleet.yaml
  bindery status
  bindery explain wiki/db`,
		Short: "Keeps the binding ledger of a mesh",
		Long: `Bindery records which provider serves which consumer of a mesh, and why, as events
that are never changed. Nothing is bound anew unless a command says so.`,
		Version:           serviceVersion,
		Args:              cobra.ArbitraryArgs,
		RunE:              groupRun,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddGroup(&cobra.Group{ID: "mesh", Title: "The mesh:"}, &cobra.Group{ID: "noun", Title: "What is in it:"},
		&cobra.Group{ID: "tool", Title: "The program:"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add("mesh", c.command(&meshInit{}), c.command(&apply{}), c.command(&status{}), c.command(&explain{}), c.command(&history{}), c.command(&logList{}), c.command(&watch{}))
	add("noun", c.nodes(), c.provisions(), c.providers(), c.modules(), c.assignments(), c.bindings(), c.overrides(), c.credentials(), c.rotations(), c.access(), c.audits())
	add("tool", c.command(&serve{}), c.command(&nodeAgent{}), c.command(&backup{}), c.command(&restore{}), c.command(&doctor{}), c.command(&version{}), c.command(&completion{}))
	c.globals.bind(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formatNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colorModes(), cobra.ShellCompDirectiveNoFileComp))
	takeOnce(root.PersistentFlags())
	c.setHelp(root)
	return root
}

// exit reports an error and gives the exit code.
func (c *cli) exit(cmd *cobra.Command, err error) int {
	if d := c.damaged; d != nil && (err == nil || errors.As(err, &differs{})) {
		r := d.warning()
		c.errorUI().refusal(c.masked(c.shownRefusal(r)))
		return r.Code.Exit()
	}
	if err == nil {
		return commands.ExitDone
	}
	if errors.As(err, &differs{}) {
		return commands.ExitDiffers
	}
	r := c.refusalOf(cmd, err)
	if d := c.damaged; d != nil {
		r = c.shownRefusal(d.instead(r))
	}
	c.errorUI().refusal(c.masked(r))
	return r.Code.Exit()
}
