package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"bindery/commands"
)

type auditKeygen struct{ name string }

func (*auditKeygen) help() *cobra.Command {
	return &cobra.Command{
		Use:     "keygen FILE",
		Example: "  bindery audit keygen home.key --name home",
		Short:   "Make a key that signs checkpoints",
		Long: `Makes an Ed25519 key pair for signed notes (golang.org/x/mod/sumdb/note), writes the secret half to a new
file that only its owner can read, and prints the verifier key, for --verifier. It needs no store. Keep
the secret half where who can write the ledger cannot read it: else it proves nothing.`,
	}
}

func (v *auditKeygen) flags(f *flags) {
	f.StringVar(&v.name, "name", "", "the `name` that signatures bear (--mesh, else bindery)")
	f.values("name")
}

func (v *auditKeygen) run(_ context.Context, c *cli, args []string) error {
	name := cmp.Or(v.name, c.globals.mesh, "bindery")
	if strings.ContainsAny(name, "+ \t\r\n") {
		return usage("the name cannot be that of a key", "it has a space or a '+'", do("audit keygen", args[0]).With("--name", "home"))
	}
	secret, verifier, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return err
	}
	if err := writeSecret(args[0], secret); err != nil {
		if errors.Is(err, os.ErrExist) {
			return usage("the file "+args[0]+" is there already", "a key that was lost cannot be made again", do("audit keygen", "OTHER"))
		}
		return refusal(commands.StoreUnusable, "the key cannot be written", err.Error(), commands.Fix{})
	}
	data, err := marshal(keyMade{File: args[0], Verifier: verifier})
	if err != nil {
		return err
	}
	return c.ui.print(answer{json: data, items: []json.RawMessage{data}, names: []string{verifier}, human: func(p *paper) { p.line(verifier) }})
}

// keyMade is a key that was made.
type keyMade struct {
	File     string `json:"file"`     // with the secret half
	Verifier string `json:"verifier"` // the public half
}

// writeSecret writes a line to a new file that only its owner can read.
func writeSecret(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, text)
	return errors.Join(err, f.Close())
}
