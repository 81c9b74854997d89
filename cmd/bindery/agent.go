package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"bindery/cmd/bindery/agent"
	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

type nodeAgent struct {
	node        string
	root        string
	hooks       string
	hookTimeout time.Duration
	secrets     string
	resolvers   []string
	group       string
	resync      bool
	logLevel    string
}

func (*nodeAgent) help() *cobra.Command {
	return &cobra.Command{
		Use: "agent",
		Example: `  bindery agent --node alpha --root /var/lib/bindery-agent --hooks /etc/bindery/hooks
  bindery --context home.json --creds /etc/bindery/agent.nk agent --node beta --hooks /etc/bindery/hooks
  bindery agent --node alpha --resolve vault=/usr/local/bin/from-vault
  bindery agent --node alpha --resync`,
		Short: "Act on a node as the ledger says",
		Long: `Acts for one node until it is told to stop (SIGTERM, Ctrl-C). For each consumer on the node it keeps the
files of the Service Binding specification below ROOT/bindings/ASSIGNMENT-ID/SLOT (type, provider, host, port,
username, password), replaced as one set, runs the consumer's hook when they have changed, and acknowledges
what it runs with, or why it cannot. For each provider on the node it has the provider's hook issue and revoke
credentials, and acknowledges that. Without --hooks no program is run, and credentials are left to operators.

A hook is DIR/provider/PROVIDER, else DIR/provider/PROVISION, else DIR/provider/default; DIR/consumer/ASSIGNMENT,
else DIR/consumer/MODULE, else DIR/consumer/default. It reads one JSON object on standard input and ends with 0
when all is done. It runs at least once, and is told when it may have run before.

One agent acts for a node; a second one waits. It needs a bindery serve. Where the ledger is not the one it
has read, it ends with 9, and goes on with --resync. docs/agent.md says the rest.`,
	}
}

func (v *nodeAgent) flags(f *flags) {
	f.args()
	f.StringVar(&v.node, "node", "", "the `node` to act for")
	f.StringVar(&v.root, "root", "", "`directory` of all that it writes ($XDG_STATE_HOME/bindery/agent, else ~/.local/state/bindery/agent)")
	f.StringVar(&v.hooks, "hooks", "", "`directory` of the hooks; not given: none is run")
	f.DurationVar(&v.hookTimeout, "hook-timeout", time.Minute, "how long a hook may run; then it is ended")
	f.StringVar(&v.secrets, "secrets", "", "where new secrets are stored: sealed, or file (sealed where it logs in with a key of its own, else file)")
	f.StringArrayVar(&v.resolvers, "resolve", nil, "`SCHEME=COMMAND` that fetches the secrets of such references; may be repeated")
	f.StringVar(&v.group, "group", "", "`name` of a group that may read the consumers' files; not given: nobody but the agent's user")
	f.BoolVar(&v.resync, "resync", false, "take the ledger as it is now, though it is not the one that was read")
	f.StringVar(&v.logLevel, "log-level", "info", "what is logged on standard error: debug, info, warn or error")
	f.must("node")
	f.names("node", nodeNames)
	f.values("secrets", inSealed, inFile)
	f.values("resolve")
	f.values("log-level", "debug", "info", "warn", "error")
}

// Where new secrets are stored.
const (
	inSealed = "sealed"
	inFile   = "file"
)

func (v *nodeAgent) run(ctx context.Context, c *cli, _ []string) error {
	logger, err := (&serve{logLevel: v.logLevel}).logger(c)
	if err != nil {
		return err
	}
	cfg := agent.Config{Node: v.node, Hooks: v.hooks, HookTimeout: v.hookTimeout, SecretsIn: v.secrets, Resync: v.resync, Logger: logger,
		Clock: c.program.Clock, Getenv: c.program.Getenv, Ready: func() { notifyReady(logger) }}
	if v.hookTimeout <= 0 {
		return usage("--hook-timeout is not more than 0", "a hook that hangs would hold up what follows for ever", do("agent").With("--help"))
	}
	if cfg.Root, err = v.rootDir(c); err != nil {
		return err
	}
	if cfg.GroupID, err = groupID(v.group); err != nil {
		return err
	}
	if cfg.Resolvers, err = resolvers(v.resolvers); err != nil {
		return err
	}
	s, err := c.open(ctx)
	if err != nil {
		return err
	}
	p, err := c.patientWith(s)
	if err != nil {
		return errors.Join(err, s.close())
	}
	err = v.act(ctx, c, p, cfg)
	p.close()
	if closed := s.close(); err == nil {
		err = closed
	}
	return err
}

// act runs the agent, and with whoever serves next once more, until ctx ends.
func (v *nodeAgent) act(ctx context.Context, c *cli, p *patient, cfg agent.Config) error {
	if !p.now.served() {
		return refusal(commands.NeedsServe, "there is nobody to act with",
			"nobody else can write while this process holds the store: no bindery serve runs on it", do("serve"))
	}
	key, err := c.agentKey()
	if err != nil {
		return err
	}
	cfg.Key, cfg.FilesElsewhere = key, cfg.SecretsIn == inFile
	switch {
	case cfg.SecretsIn == "" && key != nil:
		cfg.SecretsIn = inSealed
	case cfg.SecretsIn == "":
		cfg.SecretsIn = inFile
	case cfg.SecretsIn != inSealed && cfg.SecretsIn != inFile:
		return usage(fmt.Sprintf("secrets cannot be stored in %q", clip(cfg.SecretsIn)), "it is sealed or file", do("agent").With("--secrets", "sealed"))
	case cfg.SecretsIn == inSealed && key == nil:
		return usage("secrets cannot be sealed", "that needs a key of the agent's own, and on a local store it logs in with none", do("agent").With("--secrets", "file"))
	}
	for {
		err := v.once(ctx, c, p.now, cfg)
		if ctx.Err() != nil || err == nil {
			return nil
		}
		if !agent.IsGone(err) && !isUnreachable(err) {
			return err
		}
		cfg.Resync = false // it was done, or the next one is told again
		cfg.Logger.Warn("looking for who serves the ledger", "error", err)
		if !p.another(ctx) {
			return p.err
		}
	}
}

// once runs the agent on one session.
func (v *nodeAgent) once(ctx context.Context, c *cli, s *session, cfg agent.Config) error {
	about, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	var me commands.WhoAmIView
	if err := askInto(about, s, commands.WhoAmI{}, &me); err != nil {
		return err
	}
	if me.Role != events.RoleAgent && me.Name != "" { // who reads the store's files has no name
		return refusal(commands.NotPermitted, "this key may not act for a node", fmt.Sprintf("%s is granted as %s", me.Name, me.Role),
			do("access grant", "NAME").With("--role", "agent").With("--node", v.node).With("--nkey", "KEY"))
	}
	var node projections.NodeView
	if err := askInto(about, s, commands.ShowNode{Node: v.node}, &node); err != nil {
		return err
	}
	cfg.Mesh, cfg.MeshID, cfg.Node, cfg.NodeID = me.Mesh, me.MeshID, node.Name, node.ID
	cfg.Ledger = &told{Client: s.client, c: c, timeout: c.globals.timeout}
	a, err := agent.New(cfg)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// askInto puts a query and decodes its answer.
func askInto(ctx context.Context, s *session, q commands.Query, v any) error {
	data, err := s.client.Ask(ctx, q)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// told is the ledger as an agent tells it what was done.
type told struct {
	*service.Client
	c       *cli
	timeout time.Duration

	mu sync.Mutex // the program's source of ids is nobody else's meanwhile
}

var _ agent.Ledger = (*told)(nil)

// Do implements agent.Ledger.
func (t *told) Do(ctx context.Context, cmd commands.Command, reason string) error {
	actor, err := t.c.actor("")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	t.mu.Lock()
	id := t.c.program.NewID()
	t.mu.Unlock()
	_, err = t.Client.Do(ctx, commands.Request{Command: cmd, ID: id, Actor: actor, Reason: reason})
	return err
}

// Ask implements agent.Ledger.
func (t *told) Ask(ctx context.Context, q commands.Query, v any) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return askInto(ctx, &session{client: t.Client}, q, v)
}

// CheckCursor implements agent.Ledger.
func (t *told) CheckCursor(ctx context.Context, at service.Cursor) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.Client.CheckCursor(ctx, at)
}

// agentKey is the key that the agent logs in with; nil on a local store, where
// whoever can read it is let in.
func (c *cli) agentKey() (*ledger.Key, error) {
	n, ok, err := c.remote()
	if !ok || err != nil {
		return nil, err
	}
	key, _, err := n.identity()
	if err != nil {
		return nil, err
	}
	return &key, nil
}

// rootDir is where the agent writes.
func (v *nodeAgent) rootDir(c *cli) (string, error) {
	if v.root != "" {
		return filepath.Abs(v.root)
	}
	if state := c.program.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) { // its specification: a relative one is ignored
		return filepath.Join(state, "bindery", "agent"), nil
	}
	home := c.program.Getenv("HOME")
	if home == "" {
		return "", usage("it is not said where the agent writes", "neither --root nor XDG_STATE_HOME or HOME says it", do("agent").With("--node", v.node).With("--root", "DIR"))
	}
	return filepath.Join(home, ".local", "state", "bindery", "agent"), nil
}

// groupID is the number of a group; -1 for none.
func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, usage("there is no such group", err.Error(), advise("getent group"))
	}
	return strconv.Atoi(g.Gid)
}

// resolvers reads SCHEME=COMMAND.
func resolvers(flags []string) (map[string]string, error) {
	out := map[string]string{}
	for _, f := range flags {
		scheme, command, ok := strings.Cut(f, "=")
		words := strings.Fields(command)
		switch {
		case !ok || len(words) == 0:
			return nil, usage("a resolver is not SCHEME=COMMAND", "", do("agent").With("--resolve", "vault=/usr/local/bin/from-vault"))
		case !slices.Contains(events.SecretSchemes(), scheme):
			return nil, usage(fmt.Sprintf("no reference to a secret has the scheme %q", clip(scheme)), "there are "+strings.Join(events.SecretSchemes(), ", "), commands.Fix{})
		case scheme == inSealed || scheme == inFile:
			return nil, usage("the agent resolves "+scheme+": itself", "", do("agent").With("--help"))
		case !filepath.IsAbs(words[0]):
			return nil, usage("the command that resolves "+scheme+": is no absolute path", "what it runs must not depend on where it is started", commands.Fix{})
		case slices.Contains(slices.Collect(maps.Keys(out)), scheme):
			return nil, usage("two commands resolve "+scheme+":", "", do("agent").With("--help"))
		}
		out[scheme] = command
	}
	return out, nil
}

// notifyReady tells systemd that the agent acts.
func notifyReady(logger *slog.Logger) {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Warn("telling systemd", "error", err)
	}
}
