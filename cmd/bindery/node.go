package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

func (c *cli) nodes() *cobra.Command {
	return c.group("node", "  bindery node register alpha", "The machines of the mesh",
		&nodeRegister{}, &nodeRename{}, &nodeRetire{}, &nodeList{}, &nodeShow{})
}

type nodeRegister struct{ write }

func (*nodeRegister) help() *cobra.Command {
	return &cobra.Command{
		Use:     "register NODE",
		Example: "  bindery node register alpha",
		Short:   "Add a machine",
		Long:    "Adds a machine to the mesh. Providers and assignments are put on it by its name.",
	}
}

func (v *nodeRegister) flags(f *flags) { v.bind(f); f.args() }

func (v *nodeRegister) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "node "+args[0], commands.RegisterNode{Name: args[0]})
}

type nodeRename struct{ write }

func (*nodeRename) help() *cobra.Command {
	return &cobra.Command{
		Use:     "rename NODE NAME",
		Example: "  bindery node rename alpha atlas",
		Short:   "Give a node another name",
		Long:    "Gives a node another name. Its id stays, and with it all that is there.",
	}
}

func (v *nodeRename) flags(f *flags) { v.bind(f); f.args(nodeNames) }

func (v *nodeRename) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "node "+args[1], commands.RenameNode{Node: args[0], To: args[1]})
}

type nodeRetire struct {
	write
	force bool
}

func (*nodeRetire) help() *cobra.Command {
	return &cobra.Command{
		Use: "retire NODE",
		Example: `  bindery node retire alpha
  bindery node retire alpha --force --reason "its board is dead"`,
		Short: "Take a node out of the mesh",
		Long: `Takes a node out of the mesh. While anything lives there this is refused, and what to do is
listed in the order in which it works. With --force what lives there stays, and status lists it.`,
	}
}

func (v *nodeRetire) flags(f *flags) {
	v.bind(f)
	f.args(nodeNames)
	f.BoolVar(&v.force, "force", false, "although it is in use; needs --reason")
}

func (v *nodeRetire) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "node "+args[0], commands.RetireNode{Node: args[0], Force: v.force})
}

type nodeList struct{}

func (*nodeList) help() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Example: "  bindery node list",
		Short:   "List the nodes",
		Long:    "Lists the live nodes, with how much is there.",
	}
}

func (*nodeList) flags(*flags) {}

func (*nodeList) run(ctx context.Context, c *cli, _ []string) error {
	return printList(ctx, c, commands.ListNodes{}, "no nodes", nodeName, []column[projections.NodeView]{
		plain("NAME", func(v projections.NodeView) string { return v.Name }),
		painted("STATE", func(p *paper, v projections.NodeView) string { return p.state(v.State) }),
		plain("PROVIDERS", func(v projections.NodeView) string { return strconv.Itoa(len(v.Providers)) }),
		plain("ASSIGNMENTS", func(v projections.NodeView) string { return strconv.Itoa(len(v.Assignments)) }),
		idColumn(func(v projections.NodeView) events.ID { return v.ID }),
		seqColumn(func(v projections.NodeView) uint64 { return v.Seq }),
	})
}

func nodeName(v projections.NodeView) string { return v.Name }

type nodeShow struct{}

func (*nodeShow) help() *cobra.Command {
	return &cobra.Command{
		Use:     "show NODE",
		Example: "  bindery node show alpha",
		Short:   "Show a node and what is there",
		Long:    "Shows a node with the providers and assignments on it.",
	}
}

func (*nodeShow) flags(f *flags) { f.args(nodeNames) }

func (*nodeShow) run(ctx context.Context, c *cli, args []string) error {
	return printItem(ctx, c, commands.ShowNode{Node: args[0]}, nodeName, func(p *paper, v projections.NodeView) {
		p.fields("name", v.Name, "id", v.ID.String(), "state", p.state(v.State),
			"providers", names(v.Providers), "assignments", names(v.Assignments), "seq", fmt.Sprint(v.Seq))
	})
}
