package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

func (c *cli) credentials() *cobra.Command {
	return c.group("credential", "  bindery credential list --provider pg-alpha", "What consumers log in with: asked for, issued, revoked",
		&credentialRequest{}, &credentialIssued{}, &credentialAdopt{}, &credentialFailed{}, &credentialRevoked{}, &credentialWriteOff{}, &credentialList{})
}

type credentialRequest struct{ write }

func (*credentialRequest) help() *cobra.Command {
	return &cobra.Command{
		Use:     "request ASSIGNMENT/SLOT",
		Example: `  bindery credential request wiki/db --reason "the last one was never taken up"`,
		Short:   "Ask for another credential of a slot",
		Long: `Asks the provider's side for another credential of a slot, in place of an ask that is open. The
consumer runs with what it has until the new one is issued. It needs --reason.`,
	}
}

func (v *credentialRequest) flags(f *flags) { v.bind(f); f.args(slotNames) }

func (v *credentialRequest) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "credential of "+args[0], commands.RequestCredential{Slot: args[0]})
}

// generation says which credential of a slot: the sequence of the event that
// asked for it.
type generation struct{ n uint64 }

func (g *generation) bind(f *flags) {
	f.Uint64Var(&g.n, "generation", 0, "which credential: the `sequence` of the event that asked for it")
	f.values("generation")
}

type credentialIssued struct {
	write
	generation
	tag
	login
	secretRef string
}

func (*credentialIssued) help() *cobra.Command {
	return &cobra.Command{
		Use:     "issued ASSIGNMENT/SLOT",
		Example: "  bindery credential issued wiki/db --generation 18 --secret-ref vault:kv/wiki/db",
		Short:   "Say that a credential exists",
		Long: `The provider's side says that a credential exists and where its secret lies. From then on the
consumer is to run with it. --secret-ref is SCHEME:PATH, never the secret: the schemes are
` + strings.Join(events.SecretSchemes(), ", ") + `. With --user the agent of the provider's node can end
the login when it is replaced; without it an operator has to.`,
	}
}

func (v *credentialIssued) flags(f *flags) {
	v.write.bind(f)
	v.generation.bind(f)
	v.tag.bind(f)
	f.args(slotNames)
	f.StringVar(&v.secretRef, secretRefFlag, "", "where its secret lies: `SCHEME:PATH`")
	f.values(secretRefFlag)
	v.login.bind(f)
	f.must("generation", secretRefFlag)
}

func (v *credentialIssued) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "credential of "+args[0],
		commands.IssueCredential{Slot: args[0], Generation: v.n, SecretRef: v.secretRef, Tag: v.ask, Node: v.node,
			User: v.user, Database: v.database})
}

type credentialFailed struct {
	write
	generation
	tag
	attempts uint64
}

func (*credentialFailed) help() *cobra.Command {
	return &cobra.Command{
		Use:     "failed ASSIGNMENT/SLOT",
		Example: `  bindery credential failed wiki/db --generation 18 --reason "the server is full"`,
		Short:   "Say that a credential could not be issued or revoked",
		Long: `The provider's side says why it could not issue a credential, or revoke it. It is recorded when the
reason changes or the number of attempts has doubled, not every time. It needs --reason.`,
	}
}

func (v *credentialFailed) flags(f *flags) {
	v.write.bind(f)
	v.generation.bind(f)
	v.tag.bind(f)
	f.args(slotNames)
	bindAttempts(f, &v.attempts)
	f.must("generation")
}

// tag is the flags of those who say which ask they have answered, and where.
type tag struct{ ask, node string }

func (t *tag) bind(f *flags) {
	f.StringVar(&t.ask, "tag", "", "the ask's `tag`, where it was read, too: refused where the ledger was restored since")
	f.StringVar(&t.node, "node", "", "the `node` it was done on: refused where the provider is on another by now")
	f.values("tag")
	f.names("node", nodeNames)
}

// bindAttempts is the flag of those who say that something failed.
func bindAttempts(f *flags, n *uint64) {
	f.Uint64Var(n, "attempts", 0, "how `many` were made; where it is not given one more than on record, and the same reason is recorded twice at most")
	f.values("attempts")
}

func (v *credentialFailed) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "credential of "+args[0],
		commands.FailCredential{Slot: args[0], Generation: v.n, Attempts: v.attempts, Tag: v.ask, Node: v.node})
}

type credentialRevoked struct {
	write
	generation
	tag
	force           bool
	dropped, absent bool
}

func (*credentialRevoked) help() *cobra.Command {
	return &cobra.Command{
		Use: "revoked ASSIGNMENT/SLOT",
		Example: `  bindery credential revoked wiki/db --generation 18
  bindery credential revoked wiki/db --generation 18 --force --reason "it was published"`,
		Short: "Say that a credential logs in no longer",
		Long: `The provider's side says that a credential logs in no longer. While its consumer has not said that it
runs with a later one this is refused; with --force and --reason an operator revokes it all the same,
which cuts the consumer off where it runs with it, and another one is asked for. --dropped and --absent
say what was done; an agent must say it, and --absent does not count for a login it has not made.`,
	}
}

func (v *credentialRevoked) flags(f *flags) {
	v.write.bind(f)
	v.generation.bind(f)
	v.tag.bind(f)
	f.args(slotNames)
	f.BoolVar(&v.force, "force", false, "although the consumer may run with it; needs --reason")
	f.BoolVar(&v.dropped, "dropped", false, "the login was there, and is dropped")
	f.BoolVar(&v.absent, "absent", false, "the login was not there")
	f.cmd.MarkFlagsMutuallyExclusive("dropped", "absent")
	f.must("generation")
}

func (v *credentialRevoked) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "credential of "+args[0],
		commands.RevokeCredential{Slot: args[0], Generation: v.n, Force: v.force, Tag: v.ask, Node: v.node, Did: v.did()})
}

// did is what was done; "" where it is not said.
func (v *credentialRevoked) did() events.Did {
	switch {
	case v.dropped:
		return events.DidDrop
	case v.absent:
		return events.DidAbsent
	}
	return ""
}

type credentialWriteOff struct {
	write
	generation
	provider   string
	all, force bool
}

func (*credentialWriteOff) help() *cobra.Command {
	return &cobra.Command{
		Use: "write-off (ASSIGNMENT/SLOT --generation G | --provider PROVIDER --all)",
		Example: `  bindery credential write-off wiki/db --generation 18 --reason "its server burned"
  bindery credential write-off --provider pg-alpha --all --reason "its disk is lost"`,
		Short: "Give up on revoking credentials",
		Long: `Gives up on revoking a credential, or all that a provider has: of one that is retired every one, else
those that are to be revoked. --force takes those in use, too, and cuts their consumers off. Many come
in several batches; interrupted, it goes on under the same --command-id. It needs --reason.`,
		Args: cobra.MaximumNArgs(1),
	}
}

func (v *credentialWriteOff) flags(f *flags) {
	v.write.bind(f)
	v.generation.bind(f)
	f.args(slotNames)
	f.StringVar(&v.provider, "provider", "", "those at this `provider`; with --all")
	f.BoolVar(&v.all, "all", false, "all of the provider's")
	f.BoolVar(&v.force, "force", false, "those that consumers may run with, too")
	f.names("provider", providerNames)
	f.cmd.MarkFlagsMutuallyExclusive("generation", "provider")
	f.cmd.MarkFlagsMutuallyExclusive("generation", "all")
	f.cmd.MarkFlagsRequiredTogether("provider", "all")
}

func (v *credentialWriteOff) run(ctx context.Context, c *cli, args []string) error {
	switch {
	case len(args) == 1 && v.provider == "":
		return c.change(ctx, &v.write, "credential of "+args[0],
			commands.WriteOffCredentials{Slot: args[0], Generation: v.n, Force: v.force})
	case len(args) == 0 && v.provider != "" && v.all:
		return v.series(ctx, c)
	}
	return usage("bindery credential write-off needs either ASSIGNMENT/SLOT and --generation, or --provider and --all", "",
		do("credential write-off").With("--help"))
}

// series writes off what a provider has, batch by batch: what one wrote off the
// next does not find.
func (v *credentialWriteOff) series(ctx context.Context, c *cli) error {
	req, err := c.request(&v.write, commands.WriteOffCredentials{Provider: v.provider, Force: v.force})
	if err != nil {
		return err
	}
	var done series
	err = c.with(ctx, func(s *session) error {
		var from providerView // the zero one where there is none: the first batch says so
		if data, err := s.client.Ask(ctx, commands.ShowProvider{Provider: v.provider}); err == nil {
			_ = json.Unmarshal(data, &from)
		}
		next := func(k int) commands.Command {
			w := commands.WriteOffCredentials{Provider: v.provider, Force: v.force}
			if !from.ID.IsZero() {
				w.Provider = from.ID.String() // its name may change hands before the last of them
			}
			if k > 0 {
				w.Series = req.ID
			}
			return w
		}
		progress := &bar{ui: c.ui, what: "writing off credentials at " + v.provider, total: from.Holders,
			done: func(s series) int { return len(s.result.Events) }}
		done, err = c.series(ctx, s, req, next, progress)
		return err
	})
	if err != nil {
		return err
	}
	return c.printResult("credentials at "+v.provider, done.result)
}

type credentialList struct {
	provider, assignment, state string
	all                         bool
}

func (*credentialList) help() *cobra.Command {
	return &cobra.Command{
		Use: "list",
		Example: `  bindery credential list --state asked
  bindery credential list --provider pg-alpha --state to-revoke -o name`,
		Short: "List the credentials",
		Long: `Lists the credentials that are asked for and those that log in, with --all those that are over, too.
-o name prints what the other verbs take: the slot, or the id of a binding that is over, and the --generation.`,
	}
}

func (v *credentialList) flags(f *flags) {
	f.StringVar(&v.provider, "provider", "", "only those at this `provider`")
	f.StringVar(&v.assignment, "assignment", "", "only of this `assignment`")
	f.StringVar(&v.state, "state", "", "only those in this `state`: "+strings.Join(projections.CredentialStates(), ", "))
	f.BoolVar(&v.all, "all", false, "those that are over, too")
	f.names("provider", providerNames)
	f.names("assignment", assignmentNames)
	f.values("state", projections.CredentialStates()...)
}

func (v *credentialList) run(ctx context.Context, c *cli, _ []string) error {
	q := commands.ListCredentials{Provider: v.provider, Assignment: v.assignment, State: v.state, All: v.all}
	return printList(ctx, c, q, "no credentials", credentialName, credentialColumns())
}

type credentialView = projections.CredentialView

func holderSlot(v credentialView) string { return v.Assignment + "/" + v.Slot }

// credentialName is a credential as the verbs take it. That of a binding that is
// over goes by the binding's id: another may bear the name by now.
func credentialName(v credentialView) string {
	if v.Ended {
		return v.Binding.String() + " --generation " + strconv.FormatUint(v.Generation, 10)
	}
	return holderSlot(v) + " --generation " + strconv.FormatUint(v.Generation, 10)
}

func credentialColumns() []column[credentialView] {
	return append([]column[credentialView]{
		plain("SLOT", holderSlot),
		plain("NODE", func(v credentialView) string { return v.Node }),
		plain("PROVIDER", func(v credentialView) string {
			if v.Embedded {
				return "embedded"
			}
			return v.Provider
		}),
	}, credentialStateColumns()...)
}

// credentialStateColumns are what there is to say of a credential where it is
// known whose it is.
func credentialStateColumns() []column[credentialView] {
	return []column[credentialView]{
		plain("GENERATION", func(v credentialView) string { return strconv.FormatUint(v.Generation, 10) }),
		painted("STATE", credentialState),
		rare("IN USE", func(v credentialView) string {
			if v.InUse {
				return "yes"
			}
			return ""
		}),
		painted("SINCE", func(p *paper, v credentialView) string { return p.ago(v.Since) }),
		rare("LOGIN", loginText),
		rare("SECRET", func(v credentialView) string { return v.SecretRef }),
		rare("ERROR", func(v credentialView) string { return trouble(v.Error, v.Attempts) }),
		wide("ISSUED", func(v credentialView) string { return fmt.Sprint(v.IssuedSeq) }),
		wide("ROTATION", func(v credentialView) string {
			if v.Rotation == nil {
				return ""
			}
			return tail(v.Rotation.String())
		}),
		wide("BINDING", func(v credentialView) string { return tail(v.Binding.String()) }),
		seqColumn(func(v credentialView) uint64 { return v.Seq }),
	}
}

// credentialState is the state and what is special about it.
func credentialState(p *paper, v credentialView) string {
	words := []string{v.State}
	if v.Revocable {
		words = append(words, "revocable")
	}
	if v.Ended {
		words = append(words, "ended")
	}
	return states(p, words)
}

// trouble is what somebody could not do, and how often it was tried.
func trouble(reason string, attempts uint64) string {
	if attempts == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s)", reason, plural(int(attempts), "attempt", "attempts"))
}
