package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

type meshInit struct {
	write
	operator, nkey string
	writer         string
	replicas       int
}

func (*meshInit) help() *cobra.Command {
	return &cobra.Command{
		Use: "init",
		Example: `  bindery init --mesh home
  bindery init --mesh home --operator ann --nkey UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4`,
		Short: "Begin the ledger of a mesh",
		Long: `Makes the store directory and begins the ledger of a mesh in it. A store holds one mesh. An init
that was interrupted is finished by the same command again. --operator grants the first operator access
through a bindery serve, in the same step.`,
	}
}

func (v *meshInit) flags(f *flags) {
	v.bind(f)
	f.StringVar(&v.operator, "operator", "", "the `name` of the first operator")
	f.StringVar(&v.nkey, "nkey", "", "his public `key`, U…")
	f.StringVar(&v.writer, "writer", "", "on a server: the public `key`, U…, that bindery serve will log in with; else the one of --creds")
	f.IntVar(&v.replicas, "replicas", 1, "on a NATS cluster: how `many` servers keep the ledger")
	f.cmd.MarkFlagsRequiredTogether("operator", "nkey")
	f.values("operator")
	f.values("nkey")
	f.values("writer")
}

func (v *meshInit) run(ctx context.Context, c *cli, _ []string) error {
	mesh := c.globals.mesh
	if mesh == "" {
		return usage("bindery init needs --mesh NAME", "a ledger is that of one mesh", do("init").With("--mesh", "NAME"))
	}
	req, err := c.request(&v.write, commands.CreateMesh{Name: mesh, Operator: v.operator, NKey: v.nkey, Writer: v.writer})
	if err != nil {
		return err
	}
	if n, ok, err := c.remote(); ok || err != nil {
		if err != nil {
			return err
		}
		return v.onServer(ctx, c, n, mesh, req)
	}
	if v.writer != "" {
		return usage("--writer is given, and no server", "a store proves what is written with a secret of its own", again().But("--writer"))
	}
	dir, err := c.storeDir()
	if err != nil {
		return err
	}
	var r commands.Result
	if req.DryRun && !isStore(dir) {
		_, r, err = c.imagine(projections.New(), req)
	} else {
		r, err = c.create(ctx, dir, mesh, req)
	}
	if err != nil {
		return err
	}
	if err := c.printResult("mesh "+mesh, r); err != nil {
		return err
	}
	if !r.DryRun {
		c.ui.note("the ledger is in " + dir)
	}
	return nil
}

// onServer begins the ledger on a server, with its first operator: without one
// nobody could ask for anything.
func (v *meshInit) onServer(ctx context.Context, c *cli, n natsContext, mesh string, req commands.Request) error {
	if v.operator == "" {
		return usage("no operator is named", "on a server every request is signed, and nobody is granted access yet", do("init").With("--mesh", mesh).With("--operator", "NAME").With("--nkey", "KEY"))
	}
	if req.DryRun {
		_, r, err := c.imagine(projections.New(), req)
		if err != nil {
			return err
		}
		return c.printResult("mesh "+mesh, r)
	}
	r, err := c.createRemote(ctx, n, mesh, v.replicas, req)
	if err != nil {
		return err
	}
	return c.printResult("mesh "+mesh, r)
}

// createRemote begins the ledger of a mesh on a server, with its first operator:
// without one nobody could ask for anything.
func (c *cli) createRemote(ctx context.Context, n natsContext, mesh string, replicas int, req commands.Request) (r commands.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	nc, err := n.connect()
	if err != nil {
		return r, notReached(n.URL, err)
	}
	defer nc.Close()
	log, err := ledger.Create(ctx, nc, mesh, ledger.CreateOptions{Replicas: replicas})
	if errors.Is(err, ledger.ErrExists) {
		log, err = ledger.Open(ctx, nc, mesh)
	}
	if err != nil {
		return r, err
	}
	if last, err := log.Last(ctx); err != nil || last > 0 {
		if err == nil {
			err = refusal(commands.LedgerExists, "the ledger of mesh "+mesh+" is on the server already", "it is at sequence "+strconv.FormatUint(last, 10), do("status").With("--server", publicURL(n.URL)))
		}
		return r, err
	}
	if create, ok := req.Command.(commands.CreateMesh); ok {
		if key, _, err := n.identity(); err == nil && create.Writer == "" && key.Public != create.NKey {
			create.Writer = key.Public
			req.Command = create
		}
	}
	h, err := handler.Open(ctx, handler.Config{Log: log, Clock: c.program.Clock, NewID: c.program.NewID})
	if err != nil {
		return r, err
	}
	defer h.Close()
	return h.Do(ctx, req)
}

// create makes the store of a mesh, as far as it is not there yet, and gives
// the ledger its first event. What is killed in between is finished by the same
// command again: a store without a stream, and a stream without events, are
// inits that were not finished.
func (c *cli) create(ctx context.Context, dir, mesh string, req commands.Request) (r commands.Result, err error) {
	if err := events.CheckName(mesh); err != nil {
		_, _, err := c.imagine(projections.New(), req) // refused before anything is made
		return r, err
	}
	if !isStore(dir) {
		if err := c.isGone(dir); err != nil {
			return r, err
		}
		if err := notRestored(dir); err != nil {
			return r, err
		}
	}
	if err := makeStore(dir); err != nil {
		return r, err
	}
	s, err := c.openStore(ctx, dir, opening{find: createLog(dir, mesh)})
	if s == nil {
		return r, err
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
		defer cancel()
		r, err = s.client.Do(ctx, req)
	}
	if closed := s.close(); err == nil {
		err = closed
	}
	return r, err
}

// makeStore makes the store's directory. One that is there must be empty, or a
// store already: a server's files are not strewn over somebody's home.
func makeStore(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return storeError(dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return storeError(dir, err)
	}
	ours := []string{ledger.LockFile, ledger.StoreFile, server.JetStreamStoreDir}
	foreign := slices.IndexFunc(entries, func(e os.DirEntry) bool { return !slices.Contains(ours, e.Name()) })
	if foreign >= 0 && !isStore(dir) {
		return refusal(commands.StoreUnusable, "the directory "+dir+" is no store and not empty",
			fmt.Sprintf("it holds %q", entries[foreign].Name()), do("init").With("--mesh", "NAME").With("--store", dir+"/bindery"))
	}
	return nil
}

// createLog opens the ledger that an init makes: a new one, or one that an
// earlier init did not finish.
func createLog(dir, mesh string) logOpener {
	return func(ctx context.Context, nc *nats.Conn) (*ledger.Log, error) {
		there, err := ledger.Meshes(ctx, nc)
		if err != nil {
			return nil, err
		}
		for _, other := range there {
			if other != mesh {
				r := wrongMesh(dir, other, mesh)
				r.Code, r.Fix = commands.LedgerExists, do("init").With("--mesh", mesh).With("--store", "DIR")
				return nil, r
			}
		}
		if len(there) > 0 {
			return ledger.Open(ctx, nc, mesh)
		}
		log, err := ledger.Create(ctx, nc, mesh, ledger.CreateOptions{})
		if errors.Is(err, ledger.ErrExists) {
			return ledger.Open(ctx, nc, mesh)
		}
		return log, err
	}
}

// imagine decides a command on a state that is nowhere stored.
func (c *cli) imagine(s *projections.State, req commands.Request) (*projections.State, commands.Result, error) {
	s.Begin()
	d, err := commands.Decide(s, req.Command, commands.Env{Now: events.Instant(c.program.Clock()), NewID: c.program.NewID,
		Actor: req.Actor, Reason: req.Reason, Command: req.ID, Whole: true})
	if err != nil {
		return s, commands.Result{}, err
	}
	s.Commit()
	return s, commands.Result{Changed: len(d.Events) > 0, DryRun: true, CommandID: req.ID, Time: s.Time,
		Events: commands.ViewsOf(d.Events, d.Records), Effect: d.Effect}, nil
}
