package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"
)

func (c *cli) modules() *cobra.Command {
	return c.group("module", "  bindery module declare wiki --requires db=postgres-database:>=14", "The applications and the slots they declare",
		&moduleDeclare{}, &moduleRemove{}, &moduleList{}, &moduleShow{})
}

type moduleDeclare struct {
	write
	file     string
	requires []string
}

func (*moduleDeclare) help() *cobra.Command {
	return &cobra.Command{
		Use: "declare (-f FILE | MODULE --requires SLOT=PROVISION[:CONSTRAINT]...)",
		Example: `  bindery module declare wiki --requires 'db=postgres-database:>=14' --requires sso=oidc
  bindery module declare -f nextcloud.yaml`,
		Short: "Declare what an application needs",
		Long: `Declares a module, or declares it anew: the slots that providers serve, and (in a file) those it
serves from instances of its own. A new declaration changes no binding; status shows what differs.`,
		Args: cobra.MaximumNArgs(1),
	}
}

func (v *moduleDeclare) flags(f *flags) {
	v.bind(f)
	f.args(moduleNames)
	f.StringVarP(&v.file, "file", "f", "", "a manifest `file` with one module; - for standard input")
	f.StringArrayVar(&v.requires, "requires", nil, "a slot, `SLOT=PROVISION[:CONSTRAINT]`, or SLOT=PROVISION@VERSION for at least that one; may be repeated")
	f.cmd.MarkFlagsMutuallyExclusive("file", "requires")
	f.cmd.MarkFlagsOneRequired("file", "requires")
}

func (v *moduleDeclare) run(ctx context.Context, c *cli, args []string) error {
	name, module, err := v.declaration(c, args)
	if err != nil {
		return err
	}
	return c.change(ctx, &v.write, "module "+name, commands.DeclareModule{Name: name, Module: module})
}

// declaration reads a module from the file or from the flags.
func (v *moduleDeclare) declaration(c *cli, args []string) (name string, m manifest.Module, err error) {
	if v.file != "" {
		if len(args) > 0 {
			return "", m, usage("a name and a file are given", "the file says which module it declares", do("module declare").With("-f", v.file))
		}
		file, data, err := manifest.Read(v.file, c.streams.In)
		if err != nil {
			return "", m, err
		}
		return manifest.DecodeModule(file, data)
	}
	if len(args) == 0 {
		return "", m, usage("bindery module declare needs MODULE", "", do("module declare").With("--help"))
	}
	m.Requires = map[string]manifest.Requirement{}
	for _, text := range v.requires {
		slot, r, err := manifest.ParseRequires(text)
		if err != nil {
			return "", m, err
		}
		if _, twice := m.Requires[slot]; twice {
			return "", m, usage("slot "+slot+" is declared twice", "", do("module declare").With("--help"))
		}
		m.Requires[slot] = r
	}
	return args[0], m, nil
}

type moduleRemove struct{ write }

func (*moduleRemove) help() *cobra.Command {
	return &cobra.Command{
		Use:     "remove MODULE",
		Example: "  bindery module remove wiki",
		Short:   "End a module that nothing is assigned of",
		Long:    "Ends a module. While assignments of it live this is refused, and they are listed.",
	}
}

func (v *moduleRemove) flags(f *flags) { v.bind(f); f.args(moduleNames) }

func (v *moduleRemove) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "module "+args[0], commands.RemoveModule{Module: args[0]})
}

type moduleList struct{}

func (*moduleList) help() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Example: "  bindery module list",
		Short:   "List the modules",
		Long:    "Lists the declared modules with their slots.",
	}
}

func (*moduleList) flags(*flags) {}

type moduleView = projections.ModuleView

func (*moduleList) run(ctx context.Context, c *cli, _ []string) error {
	return printList(ctx, c, commands.ListModules{}, "no modules", func(v moduleView) string { return v.Name }, []column[moduleView]{
		plain("NAME", func(v moduleView) string { return v.Name }),
		plain("REQUIRES", func(v moduleView) string { return slots(v, "requires") }),
		plain("EMBEDS", func(v moduleView) string { return slots(v, "embeds") }),
		plain("ASSIGNMENTS", func(v moduleView) string { return strconv.Itoa(len(v.Assignments)) }),
		idColumn(func(v moduleView) events.ID { return v.ID }),
		seqColumn(func(v moduleView) uint64 { return v.Seq }),
	})
}

// slots lists the slots of one kind.
func slots(m moduleView, kind string) string {
	var out []string
	for _, s := range m.Slots {
		if s.Kind == kind {
			out = append(out, s.Slot)
		}
	}
	return strings.Join(out, ", ")
}

type moduleShow struct{}

func (*moduleShow) help() *cobra.Command {
	return &cobra.Command{
		Use:     "show MODULE",
		Example: "  bindery module show nextcloud",
		Short:   "Show a module and its slots",
		Long:    "Shows a module with what each slot needs, or ships itself, and where it is assigned.",
	}
}

func (*moduleShow) flags(f *flags) { f.args(moduleNames) }

func (*moduleShow) run(ctx context.Context, c *cli, args []string) error {
	return printItem(ctx, c, commands.ShowModule{Module: args[0]}, func(v moduleView) string { return v.Name },
		func(p *paper, v moduleView) {
			p.fields("name", v.Name, "id", v.ID.String(), "assignments", names(v.Assignments), "seq", fmt.Sprint(v.Seq))
			if len(v.Slots) > 0 {
				p.line("")
				itemTable(p, v.Slots, slotColumns())
			}
		})
}

type slotView = projections.SlotView

func slotColumns() []column[slotView] {
	return []column[slotView]{
		plain("SLOT", func(v slotView) string { return v.Slot }),
		plain("KIND", func(v slotView) string { return v.Kind }),
		plain("PROVISION", func(v slotView) string { return v.Provision }),
		plain("VERSION", func(v slotView) string { return v.Version }),
		plain("FEATURES", func(v slotView) string { return strings.Join(v.Features, ",") }),
		plain("PROVIDER", func(v slotView) string { return v.Provider }),
		plain("NOTE", slotNote),
	}
}

// slotNote is what is special about a slot.
func slotNote(v slotView) string {
	var out []string
	if v.Optional {
		out = append(out, "optional")
	}
	if v.Embed != nil {
		out = append(out, "because of its "+string(v.Embed.Because))
		if v.Embed.Replaceable {
			out = append(out, "replaceable")
		}
	}
	return strings.Join(out, ", ")
}
