package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

func (c *cli) assignments() *cobra.Command {
	return c.group("assignment", "  bindery assignment create wiki --node beta", "The modules placed on nodes: the consumers",
		&assignmentCreate{}, &assignmentMove{}, &assignmentRename{}, &assignmentEnd{}, &assignmentResolve{}, &assignmentList{}, &assignmentShow{})
}

type assignmentCreate struct {
	write
	node, name string
	bind       []string
}

func (*assignmentCreate) help() *cobra.Command {
	return &cobra.Command{
		Use: "create MODULE",
		Example: `  bindery assignment create wiki --node beta
  bindery assignment create wiki --node beta --name wiki-beta --bind db=pg-beta`,
		Short: "Place a module on a node and bind its slots",
		Long: `Places a module on a node. All its slots are bound, or nothing is: where more than one provider
could serve a slot, or none, it is refused with the candidates. An optional slot may stay pending.`,
	}
}

func (v *assignmentCreate) flags(f *flags) {
	v.write.bind(f)
	f.args(moduleNames)
	f.StringVar(&v.node, "node", "", "the `node` it runs on")
	f.StringVar(&v.name, "name", "", "its `name`; the module's where it is not given")
	f.StringArrayVar(&v.bind, "bind", nil, "choose a provider, `SLOT=PROVIDER`; may be repeated")
	f.names("node", nodeNames)
	f.must("node")
}

func (v *assignmentCreate) run(ctx context.Context, c *cli, args []string) error {
	bind, err := v.choices()
	if err != nil {
		return err
	}
	name := v.name
	if name == "" {
		name = args[0]
	}
	return c.change(ctx, &v.write, "assignment "+name, commands.CreateAssignment{Module: args[0], Node: v.node, Name: v.name, Bind: bind})
}

// choices reads --bind.
func (v *assignmentCreate) choices() (map[string]string, error) {
	var out map[string]string
	for _, text := range v.bind {
		slot, provider, ok := strings.Cut(text, "=")
		if !ok || slot == "" || provider == "" {
			return nil, usage(fmt.Sprintf("--bind %q is not SLOT=PROVIDER", clip(text)), "", do("assignment create").With("--help"))
		}
		if _, twice := out[slot]; twice {
			return nil, usage("--bind names slot "+clip(slot)+" twice", "", do("assignment create").With("--help"))
		}
		if out == nil {
			out = map[string]string{}
		}
		out[slot] = provider
	}
	return out, nil
}

type assignmentMove struct {
	write
	to        string
	reResolve bool
}

func (*assignmentMove) help() *cobra.Command {
	return &cobra.Command{
		Use: "move ASSIGNMENT",
		Example: `  bindery assignment move wiki --to alpha
  bindery assignment move wiki --to alpha --re-resolve`,
		Short: "Move a consumer to another node",
		Long:  "Moves a consumer to another node. Its bindings stay as they are, unless --re-resolve runs the ladder for each slot anew.",
	}
}

func (v *assignmentMove) flags(f *flags) {
	v.bind(f)
	f.args(assignmentNames)
	f.StringVar(&v.to, "to", "", "the `node` it runs on from now on")
	f.BoolVar(&v.reResolve, "re-resolve", false, "decide every slot anew")
	f.names("to", nodeNames)
	f.must("to")
}

func (v *assignmentMove) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "assignment "+args[0], commands.MoveAssignment{Assignment: args[0], To: v.to, ReResolve: v.reResolve})
}

type assignmentRename struct{ write }

func (*assignmentRename) help() *cobra.Command {
	return &cobra.Command{
		Use:     "rename ASSIGNMENT NAME",
		Example: "  bindery assignment rename wiki wiki-beta",
		Short:   "Give an assignment another name",
		Long:    "Gives an assignment another name. Its id stays, and with it every binding.",
	}
}

func (v *assignmentRename) flags(f *flags) { v.bind(f); f.args(assignmentNames) }

func (v *assignmentRename) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "assignment "+args[1], commands.RenameAssignment{Assignment: args[0], To: args[1]})
}

type assignmentEnd struct{ write }

func (*assignmentEnd) help() *cobra.Command {
	return &cobra.Command{
		Use:     "end ASSIGNMENT",
		Example: "  bindery assignment end wiki-beta",
		Short:   "End a consumer and release its bindings",
		Long:    "Ends a consumer. Its overrides are cleared and its bindings released, whatever else is down.",
	}
}

func (v *assignmentEnd) flags(f *flags) { v.bind(f); f.args(assignmentNames) }

func (v *assignmentEnd) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "assignment "+args[0], commands.EndAssignment{Assignment: args[0]})
}

type assignmentResolve struct {
	write
	rebind, prune bool
}

func (*assignmentResolve) help() *cobra.Command {
	return &cobra.Command{
		Use: "resolve ASSIGNMENT",
		Example: `  bindery assignment resolve wiki
  bindery assignment resolve wiki --rebind --prune`,
		Short: "Bind the slots of a consumer that are pending",
		Long: `Binds the slots that nothing serves yet. With --rebind those that drift follow what is asked for;
with --prune those that the module declares no longer are released.`,
	}
}

func (v *assignmentResolve) flags(f *flags) {
	v.bind(f)
	f.args(assignmentNames)
	f.BoolVar(&v.rebind, "rebind", false, "move the slots that drift, too")
	f.BoolVar(&v.prune, "prune", false, "release the slots declared no longer")
}

func (v *assignmentResolve) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "assignment "+args[0], commands.ResolveAssignment{Assignment: args[0], Rebind: v.rebind, Prune: v.prune})
}

type assignmentList struct{}

func (*assignmentList) help() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Example: "  bindery assignment list",
		Short:   "List the assignments",
		Long:    "Lists the live assignments with what serves their slots.",
	}
}

func (*assignmentList) flags(*flags) {}

type assignmentView = projections.AssignmentView

func (*assignmentList) run(ctx context.Context, c *cli, _ []string) error {
	return printList(ctx, c, commands.ListAssignments{}, "no assignments", func(v assignmentView) string { return v.Name }, []column[assignmentView]{
		plain("NAME", func(v assignmentView) string { return v.Name }),
		plain("MODULE", func(v assignmentView) string { return v.Module }),
		plain("NODE", func(v assignmentView) string { return v.Node }),
		painted("BINDINGS", served),
		idColumn(func(v assignmentView) events.ID { return v.ID }),
		seqColumn(func(v assignmentView) uint64 { return v.Seq }),
	})
}

// served is "db=pg-alpha, sso=pending".
func served(p *paper, v assignmentView) string {
	out := make([]string, len(v.Bindings))
	for i, b := range v.Bindings {
		out[i] = b.Slot + "=" + p.state(target(b))
	}
	return strings.Join(out, ", ")
}

type assignmentShow struct{}

func (*assignmentShow) help() *cobra.Command {
	return &cobra.Command{
		Use:     "show ASSIGNMENT",
		Example: "  bindery assignment show wiki",
		Short:   "Show a consumer and its bindings",
		Long:    "Shows an assignment, the providers it chooses, and what serves each slot.",
	}
}

func (*assignmentShow) flags(f *flags) { f.args(assignmentNames) }

func (*assignmentShow) run(ctx context.Context, c *cli, args []string) error {
	return printItem(ctx, c, commands.ShowAssignment{Assignment: args[0]}, func(v assignmentView) string { return v.Name },
		func(p *paper, v assignmentView) {
			var choices []string
			for _, slot := range slices.Sorted(maps.Keys(v.Choices)) {
				choices = append(choices, slot+"="+v.Choices[slot])
			}
			p.fields("name", v.Name, "id", v.ID.String(), "state", p.state(v.State), "module", v.Module, "node", v.Node,
				"choices", names(choices), "seq", fmt.Sprint(v.Seq))
			if len(v.Bindings) > 0 {
				p.line("")
				itemTable(p, v.Bindings, bindingColumns())
			}
		})
}
