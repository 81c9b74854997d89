package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// fixSource is a fix as the program's text makes it: do("binding show", path) with
// flags. What is not a literal is "".
type fixSource struct {
	at    string
	verb  string
	args  int
	flags [][]string // name, and "value" where one is given
}

// Every fix that the program's text makes is a command that there is, with arguments and
// flags that it takes. Kind: a fix that names what is not there (any more).
func TestEveryFixParses(t *testing.T) {
	root := newTree(t)
	fixes := fixSources(t)
	if len(fixes) < 150 {
		t.Fatalf("%d fixes found; where are the others?", len(fixes))
	}
	for _, f := range fixes {
		verbs := []string{f.verb}
		if noun, rest, found := strings.Cut(f.verb, "*"); found && noun == "" { // of any noun
			verbs = nil
			for _, group := range root.Commands() {
				if group.GroupID == "noun" && group.Name() != "override" && group.Name() != "audit" && group.Name() != "access" && group.Name() != "rotation" && group.Name() != "credential" {
					verbs = append(verbs, group.Name()+rest)
				}
			}
		}
		for _, verb := range verbs {
			checkFix(t, root, f, verb)
		}
	}
}

func checkFix(t *testing.T, root *cobra.Command, f fixSource, verb string) {
	t.Helper()
	cmd, rest, err := root.Find(strings.Fields(verb))
	if err != nil || len(rest) > 0 || cmd.CommandPath() != strings.TrimSpace(programName+" "+verb) {
		t.Errorf("%s: there is no command %q", f.at, verb)
		return
	}
	for _, flag := range f.flags {
		known := flagOf(cmd, flag[0])
		switch {
		case flag[0] == "--help":
		case known == nil:
			t.Errorf("%s: %s has no flag %s", f.at, cmd.CommandPath(), flag[0])
		case (known.NoOptDefVal != "") == (len(flag) > 1):
			t.Errorf("%s: %s %s has a value too many, or none", f.at, cmd.CommandPath(), flag[0])
		}
	}
	if slices.ContainsFunc(f.flags, func(flag []string) bool { return flag[0] == "--help" }) {
		return
	}
	if cmd.HasSubCommands() {
		t.Errorf("%s: %s does nothing by itself", f.at, cmd.CommandPath())
	}
	if most := strings.Fields(cmd.Use)[1:]; f.args > len(most) {
		t.Errorf("%s: %s takes no %d arguments", f.at, cmd.UseLine(), f.args)
	}
	if least := len(needed(cmd)); f.args < least {
		t.Errorf("%s: %s needs %d arguments, and the fix has %d", f.at, cmd.CommandPath(), least, f.args)
	}
}

// fixSources finds them in all packages.
func fixSources(t *testing.T) (out []fixSource) {
	t.Helper()
	eachGoFile(t, "../..", func(path string, set *token.FileSet, f *ast.File) {
		inner := map[ast.Expr]bool{} // receivers of With
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || inner[call] {
				return true
			}
			var flags [][]string
			at := call
			for {
				sel, ok := at.Fun.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "With" {
					break
				}
				next, ok := sel.X.(*ast.CallExpr)
				if !ok {
					return true
				}
				flag := []string{literal(at.Args[0])}
				if len(at.Args) > 1 {
					flag = append(flag, "value")
				}
				if flag[0] != "" {
					flags = append(flags, flag)
				}
				inner[next], at = true, next
			}
			switch name := calledName(at); {
			case name == "do", name == "Do":
			default:
				return true
			}
			if len(at.Args) == 0 || at.Ellipsis.IsValid() {
				return true
			}
			verb := literal(at.Args[0])
			if bin, ok := at.Args[0].(*ast.BinaryExpr); ok {
				verb = "*" + literal(bin.Y)
			} else if _, isLiteral := at.Args[0].(*ast.BasicLit); !isLiteral {
				return true // a Do of something else
			}
			out = append(out, fixSource{at: set.Position(at.Pos()).String(), verb: verb, args: len(at.Args) - 1, flags: flags})
			return true
		})
	})
	return out
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && x.Name == "projections" {
			return f.Sel.Name
		}
	}
	return ""
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
}

// The core speaks no command line. Kind: a text of it that tells people what to type, and
// knows neither their shell nor how they reach the ledger.
func TestCoreSpeaksNoCommandLine(t *testing.T) {
	root := newTree(t)
	for _, dir := range []string{"events", "projections", "commands", "ledger"} {
		eachGoFile(t, filepath.Join("../..", dir), func(path string, set *token.FileSet, f *ast.File) {
			ast.Inspect(f, func(n ast.Node) bool {
				l, ok := n.(*ast.BasicLit)
				if !ok || l.Kind != token.STRING {
					return true
				}
				text, _ := strconv.Unquote(l.Value)
				for _, part := range strings.Split(text, programName+" ")[1:] {
					words := strings.Fields(part)
					if len(words) == 0 || strings.HasPrefix(text, "# "+programName) { // a comment in a file that is written
						continue
					}
					if cmd, _, err := root.Find(words[:1]); err == nil && cmd != root {
						t.Errorf("%s: %q", set.Position(l.Pos()), text)
					}
				}
				return true
			})
		})
	}
}

// eachGoFile parses the program's own files below a directory.
func eachGoFile(t *testing.T, dir string, f func(path string, set *token.FileSet, file *ast.File)) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err == nil {
			f(path, set, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
