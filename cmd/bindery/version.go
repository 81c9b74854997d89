package main

import (
	"context"
	"encoding/json"
	"runtime"
	"runtime/debug"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"
)

// serviceVersion is what the services API shows, which asks for semver.
const serviceVersion = "0.1.0"

type version struct{}

func (*version) help() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Example: "  bindery version -o json",
		Short:   "Show the version of the program",
		Long:    "Shows the version of the program, of Go and of the server within it. It needs no store.",
	}
}

func (*version) flags(f *flags) { f.args() }

// versionView is the JSON of version.
type versionView struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // with "+" where the tree had changes
	Go      string `json:"go"`
	NATS    string `json:"nats"`
}

func (*version) run(_ context.Context, c *cli, _ []string) error {
	v := versionView{Version: serviceVersion, Commit: commit(), Go: runtime.Version(), NATS: server.VERSION}
	data, err := marshal(v)
	if err != nil {
		return err
	}
	return c.ui.print(answer{json: data, items: []json.RawMessage{data}, names: []string{v.Version}, human: func(p *paper) {
		p.fields("bindery", v.Version, "commit", v.Commit, "go", v.Go, "nats-server", v.NATS)
	}})
}

// commit is what the program was built from, as far as Go knows.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	out := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			out = s.Value[:12] + out
		case s.Key == "vcs.modified" && s.Value == "true":
			out += "+"
		}
	}
	return out
}
