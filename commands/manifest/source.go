package manifest

import (
	"bytes"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"

	"bindery/events"
)

// parse reads one text as one YAML document. It returns nil after an error.
//
// The library scans a text as a whole and parses it recursively, and is not
// made for hostile input; so guard bounds what the scanner sees, and
// checkTokens what the parser sees.
func (d *decoder) parse(file string, data []byte) (root ast.Node) {
	d.file, d.lines = file, nil
	d.files = append(d.files, file)
	d.targets = map[*ast.AliasNode]ast.Node{}
	found := len(d.errs)

	text, ok := d.guard(data)
	if !ok {
		return nil
	}
	d.lines = splitLines(text)
	defer func() { // the library indexes past the end on some broken texts
		if r := recover(); r != nil {
			root = nil
			d.fail(position{file: file}, CodeInvalid, "the text cannot be read as YAML")
		}
	}()
	tokens, ok := d.scan(text)
	if !ok || !d.checkTokens(tokens) {
		return nil
	}
	f, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return nil
	}
	for _, doc := range f.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); doc.Body != nil && !directive {
			root = doc.Body
		}
	}
	if _, null := root.(*ast.NullNode); root == nil || null {
		d.fail(position{file: file}, CodeInvalid, "the manifest is empty: it says nothing").Why = "only comments, or null"
		return nil
	}
	a := aliases{d: d, anchors: map[string]*anchor{}}
	size, _ := a.measure(root, 0)
	if len(d.errs) > found {
		return nil
	}
	if d.nodes += size; d.nodes > MaxNodes {
		d.tooMany(d.at(root))
		return nil
	}
	return root
}

func (d *decoder) tooMany(at position) {
	e := d.fail(at, CodeTooLarge, "more than %d keys and values, aliases expanded", MaxNodes)
	e.Why = "a manifest has at most that many"
	e.Write = "split the fleet over several applies"
}

func (d *decoder) tooDeep(at position) {
	d.fail(at, CodeTooLarge, "maps and lists nested deeper than %d", MaxDepth)
}

// Bounds on what the scanner is given, far beyond what MaxNodes needs. It is
// slow in some things and quadratic in others.
const (
	maxIndicators = 5 * MaxNodes // bytes that begin, end or part values
	maxLines      = 2 * MaxNodes // lines with something on them, and as many with a comment only
	maxMarkers    = 100          // lines of --- or ..., of which one document has three at most
	maxAngles     = 64           // '<' in a row: each looks at all behind it
	maxCost       = 100_000_000  // blank lines in a row × size, under a block text; tabs × the length of their line
)

// guard checks the bytes before anything reads them as YAML.
func (d *decoder) guard(data []byte) (string, bool) {
	none := position{file: d.file}
	if len(data) > MaxFile {
		d.fail(none, CodeTooLarge, "%d bytes; at most %d are allowed", len(data), MaxFile)
		return "", false
	}
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		d.fail(none, CodeInvalid, "the text is in UTF-16, not in UTF-8").Write = "save it as UTF-8"
		return "", false
	}
	text := string(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	if strings.TrimSpace(text) == "" {
		d.fail(none, CodeInvalid, "the file is empty")
		return "", false
	}
	var (
		at             = position{d.file, 1, 0}
		prev           rune
		blank, comment = true, false // of the line so far
		tabs           int           // of the line so far

		indicators, lines, comments, markers, angles, blanks, cost int
	)
	for i, r := range text {
		switch {
		case prev == '\r' && r == '\n':
		case prev == '\n' || prev == '\r':
			if cost += tabs * at.column; blank {
				blanks++
			} else {
				blanks = 0
			}
			at.line, at.column = at.line+1, 1
			blank, comment, tabs = true, false, 0
		default:
			at.column++
		}
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd") {
			d.fail(at, CodeInvalid, "the byte 0x%02x is not UTF-8; a manifest is text", text[i])
			return "", false
		}
		if unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' {
			d.fail(at, CodeInvalid, "the control character %U; a manifest is text", r)
			return "", false
		}
		switch r {
		case ' ', '\t', '\n', '\r':
			if r == '\t' {
				tabs++
			}
			if !comment && (prev == ':' || prev == '-' || prev == '?') {
				indicators++
			}
		case '#':
			if blank {
				blank, comment = false, true
				comments++
			}
		case '[', ']', '{', '}', ',', '&', '*', '!', '%', '"', '\'':
			if !comment {
				indicators++
			}
		case '-', '.':
			if at.column == 1 && (strings.HasPrefix(text[i:], "---") || strings.HasPrefix(text[i:], "...")) {
				markers++
			}
		}
		if blank && r != ' ' && r != '\t' && r != '\n' && r != '\r' {
			blank = false
			lines++
		}
		if angles++; r != '<' {
			angles = 0
		}
		switch {
		case indicators > maxIndicators:
			d.tooMany(at)
		case lines > maxLines || comments > maxLines:
			d.fail(at, CodeTooLarge, "more than %d lines", maxLines)
		case markers > maxMarkers:
			d.second(at)
		case angles > maxAngles:
			d.fail(at, CodeTooLarge, "more than %d '<' in a row", maxAngles)
		case blank && blanks*len(text) > maxCost:
			d.fail(at, CodeTooLarge, "%d blank lines in a row", blanks)
		case cost+tabs*at.column > maxCost:
			d.fail(at, CodeTooLarge, "too many tabs")
		default:
			prev = r
			continue
		}
		return "", false
	}
	return text, true
}

// scan turns the text into tokens, up to the first that is none.
func (d *decoder) scan(text string) (token.Tokens, bool) {
	var (
		s   scanner.Scanner
		out token.Tokens
	)
	s.Init(text)
	for {
		tokens, err := s.Scan()
		out.Add(tokens...)
		if bad := tokens.InvalidToken(); bad != nil {
			d.syntaxAt(bad, bad.Error)
			return nil, false
		}
		if err != nil { // io.EOF: any other comes with an invalid token
			return out, true
		}
	}
}

// maxKeysSquared bounds the sum, over the block maps, of the square of their
// keys: the parser descends into itself at each key.
const maxKeysSquared = 10_000 * 10_000

// checkTokens bounds what the parser is given: one document, no more values
// than allowed, no deeper than allowed, no tab that indents.
func (d *decoder) checkTokens(tokens token.Tokens) bool {
	type level struct{ column, keys int }
	var (
		blocks          []level // the block maps and lists that are open
		nodes, flow     int
		cost            int
		content, closed bool // a document has begun; it was ended by "..."
		line            int  // of the token before
	)
	pop := func(column int) {
		for len(blocks) > 0 && blocks[len(blocks)-1].column > column {
			cost += blocks[len(blocks)-1].keys * blocks[len(blocks)-1].keys
			blocks = blocks[:len(blocks)-1]
		}
	}
	push := func(column, keys int) {
		if pop(column); len(blocks) == 0 || blocks[len(blocks)-1].column < column {
			blocks = append(blocks, level{column: column})
		}
		blocks[len(blocks)-1].keys += keys
	}
	for i, t := range tokens {
		at := position{d.file, t.Position.Line, t.Position.Column}
		if t.Type == token.CommentType {
			continue
		}
		if flow == 0 && t.Position.Line > line {
			if tab := d.indentTab(t.Position.Line); tab > 0 {
				at.column = tab
				d.tab(at)
				return false
			}
		}
		line = t.Position.Line
		switch t.Type {
		case token.DirectiveType:
			if t.Next == nil || t.Next.Value != "YAML" {
				d.fail(at, CodeInvalid, "a %%-directive other than %%YAML; a text that begins with %%, quote").Write = `quote it: "%…"`
				return false
			}
			continue
		case token.DocumentHeaderType, token.DocumentEndType:
			if t.Type == token.DocumentHeaderType && content {
				d.second(at)
				return false
			}
			closed = closed || content && t.Type == token.DocumentEndType
			continue
		}
		if i > 0 && (tokens[i-1].Type == token.DirectiveType || i > 1 && tokens[i-2].Type == token.DirectiveType) {
			continue // %YAML 1.2
		}
		if closed {
			d.second(at)
			return false
		}
		content = true
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
			nodes++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.SequenceEntryType:
			if flow == 0 {
				push(t.Position.Column, 0)
			}
		case token.MappingValueType:
			if flow == 0 && t.Prev != nil {
				push(t.Prev.Position.Column, 1)
			}
		case token.MappingKeyType, token.CollectEntryType, token.LiteralType, token.FoldedType, token.TagType, token.AnchorType:
		default:
			if t.Prev == nil || t.Prev.Type != token.AnchorType {
				nodes++
			}
		}
		if flow > MaxDepth || len(blocks) > MaxDepth {
			d.tooDeep(at)
			return false
		}
		if d.nodes+nodes > MaxNodes {
			d.tooMany(at)
			return false
		}
	}
	if pop(0); cost > maxKeysSquared {
		e := d.fail(position{file: d.file}, CodeTooLarge, "too many keys in one map")
		e.Why = "a map in block form has at most about 10000"
		e.Write = "split it over several files, and apply their directory"
		return false
	}
	return true
}

func (d *decoder) second(at position) {
	e := d.fail(at, CodeInvalid, "a second document; a manifest is one")
	e.Write = "put it into a file of its own, and apply the directory"
}

func (d *decoder) tab(at position) {
	d.fail(at, CodeInvalid, "a tab where only spaces indent").Write = "indent with spaces"
}

// indentTab is the column of the first tab in a line's indentation, or 0.
func (d *decoder) indentTab(line int) int {
	if line < 1 || line > len(d.lines) {
		return 0
	}
	for i, c := range []byte(d.lines[line-1]) {
		switch c {
		case ' ':
		case '\t':
			return i + 1
		default:
			return 0
		}
	}
	return 0
}

// syntax reports what the parser does not accept.
func (d *decoder) syntax(err error) {
	var s *yaml.SyntaxError
	if errors.As(err, &s) && s.Token != nil {
		d.syntaxAt(s.Token, s.Message)
		return
	}
	d.fail(position{file: d.file}, CodeInvalid, "the text cannot be read as YAML")
}

// What the library says, and what it means here. First that fits.
var syntaxWords = []struct{ has, message, why, fix string }{
	{"'\t' that cannot start any token", "a tab where only spaces indent", "", "indent with spaces"},
	{"tab character", "a tab where only spaces indent", "", "indent with spaces"},
	{"sequence end token ']'", "the list that begins here has no end", "a ']' is missing, or the file is cut off", ""},
	{"flow mapping end token '}'", "the map that begins here has no end", "a '}' is missing, or the file is cut off", ""},
	{"end character of", "the quoted text that begins here has no end", "a quote is missing, or the file is cut off", ""},
	{"invalid header option", "a text that begins with '>' or '|' must be quoted", "YAML reads them as the beginning of a block of text", `quote it: ">=14"`},
	{"is a reserved character", "a text that begins with '@' or '`' must be quoted", "YAML reserves them", "quote it"},
	{"mapping value is not allowed", "a key where none can stand", "wrong indentation, or a text with ': ' in it that is not quoted", ""},
	{"value is not allowed", "a value where none can stand", "wrong indentation, or a quote or a ':' is missing", ""},
	{"non-map value", "not a key, where a key must stand", "wrong indentation, or a ':' is missing", ""},
	{"flow map content", "the map has no end, or a key in it no ':'", "a '}' is missing, or the file is cut off", ""},
	{"invalid tag character", "a text that begins with '!' must be quoted", "YAML reads it as a tag", `quote it: "!=14"`},
	{"invalid key for this map", "a key that is no text", "a key is missing before ':', or a map or a list stands there", ""},
	{"unexpected scalar value type", "a value is missing here", "a ',' or a key too many, or the file is cut off", ""},
	{"unknown escape character", "an escape that YAML does not know", "in \"double quotes\" a backslash escapes", "write \\\\, or use 'single quotes'"},
}

func (d *decoder) syntaxAt(t *token.Token, message string) {
	at := position{file: d.file}
	if t != nil && t.Position != nil {
		at.line, at.column = t.Position.Line, t.Position.Column
	}
	for _, w := range syntaxWords {
		if strings.Contains(message, w.has) {
			e := d.fail(at, CodeInvalid, "%s", w.message)
			e.Why, e.Write = w.why, w.fix
			return
		}
	}
	if events.CheckNoSecret(message) != nil || len(message) > 200 {
		message = "the text cannot be read as YAML"
	}
	d.fail(at, CodeInvalid, "%s", message)
}

// aliases finds what each alias stands for and what a node is once they are
// expanded, in one pass in the order of the text. An alias means the last
// anchor of its name before it; one inside its own anchor would have no end.
type aliases struct {
	d       *decoder
	anchors map[string]*anchor
}

type anchor struct {
	node         ast.Node
	open         bool
	size, height int
}

// measure returns how many nodes n is and how deep, aliases expanded.
func (a *aliases) measure(n ast.Node, depth int) (size, height int) {
	if depth > MaxDepth {
		a.d.tooDeep(a.d.at(n))
		return 0, 0
	}
	inner := func(n ast.Node) {
		s, h := a.measure(n, depth+1)
		size, height = min(size+s, MaxNodes+1), max(height, h+1)
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		size, height = 1, 1
		for _, v := range n.Values {
			s, _ := a.measure(v.Key, depth)
			size += s
			inner(v.Value)
		}
	case *ast.SequenceNode:
		size, height = 1, 1
		for _, v := range n.Values {
			inner(v)
		}
	case *ast.MappingKeyNode:
		return a.measure(n.Value, depth)
	case *ast.TagNode:
		if n.Value == nil {
			return 1, 0
		}
		return a.measure(n.Value, depth)
	case *ast.AnchorNode:
		name := n.Name.GetToken().Value
		an := &anchor{node: n.Value, open: true}
		a.anchors[name] = an
		an.size, an.height = a.measure(n.Value, depth)
		an.open = false
		return an.size, an.height
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		an := a.anchors[name]
		switch {
		case an == nil:
			e := a.d.fail(a.d.at(n), CodeInvalid, "alias *%s without an anchor &%s before it", plain(name), plain(name))
			e.Why = "a text that begins with '*' is an alias"
			e.Write = `quote it: "*…"`
			return 1, 0
		case an.open:
			a.d.fail(a.d.at(n), CodeInvalid, "alias *%s stands inside its own anchor", plain(name)).Why = "it would have no end"
			return 1, 0
		case depth+an.height > MaxDepth:
			a.d.tooDeep(a.d.at(n))
			return 1, 0
		}
		a.d.targets[n] = an.node
		return an.size, an.height
	default:
		return 1, 0
	}
	return size, height
}

// plain is show without quotes.
func plain(s string) string {
	q := show(s)
	return strings.TrimSuffix(strings.TrimPrefix(q, `"`), `"`)
}

// at is where a node's text begins.
func (d *decoder) at(n ast.Node) position {
	switch v := n.(type) {
	case *ast.MappingNode:
		if !v.IsFlowStyle && len(v.Values) > 0 {
			return d.at(v.Values[0].Key)
		}
	case *ast.MappingKeyNode:
		if v.Value != nil {
			return d.at(v.Value)
		}
	}
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return position{file: d.file}
	}
	return position{d.file, t.Position.Line, d.column(t)}
}

// column corrects the scanner's column, which does not count tabs. It gives up
// on a very long line, in which no one looks for a column.
func (d *decoder) column(t *token.Token) int {
	line, column := t.Position.Line, t.Position.Column
	if line < 1 || line > len(d.lines) || len(d.lines[line-1]) > 4096 || !strings.Contains(d.lines[line-1], "\t") {
		return column
	}
	needle := t.Value
	switch t.Type {
	case token.DoubleQuoteType:
		needle = `"`
	case token.SingleQuoteType:
		needle = "'"
	}
	text := []rune(d.lines[line-1])
	if column < 1 || column > len(text) {
		return column
	}
	rest := string(text[column-1:])
	if i := strings.Index(rest, needle); i >= 0 {
		return column + utf8.RuneCountInString(rest[:i])
	}
	return column
}

// splitLines cuts a text at LF, CR LF and CR, as the scanner does.
func splitLines(text string) []string {
	return strings.Split(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n"), "\n")
}
