package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"bindery/commands"
)

// format is a format of output.
type format string

// The formats.
const (
	formatTable     format = "table"
	formatWide      format = "wide"
	formatJSON      format = "json"
	formatJSONLines format = "jsonl"
	formatYAML      format = "yaml"
	formatName      format = "name"
)

func formatNames() []string {
	return []string{string(formatTable), string(formatWide), string(formatJSON), string(formatJSONLines), string(formatYAML), string(formatName)}
}

// String implements pflag.Value.
func (f *format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *format) Type() string { return "format" }

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	if !slices.Contains(formatNames(), s) {
		return oneOf(s, formatNames())
	}
	*f = format(s)
	return nil
}

// oneOf is the error of a value that is none of those allowed.
func oneOf(got string, allowed []string) error {
	text := "it is one of " + strings.Join(allowed, ", ")
	if near := commands.Nearest(got, allowed, 1); len(near) > 0 {
		text += "; did you mean " + near[0] + "?"
	}
	return errors.New(text)
}

// formatIn finds -o in a command line that could not be read.
func formatIn(args []string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--output="); ok {
			return v
		}
		if v, ok := strings.CutPrefix(a, "-o"); ok && v != "" && !strings.HasPrefix(a, "--") {
			return strings.TrimPrefix(v, "=")
		}
		if (a == "-o" || a == "--output") && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// colorMode says when there is colour.
type colorMode string

const (
	colorAuto   colorMode = "auto"
	colorAlways colorMode = "always"
	colorNever  colorMode = "never"
)

func colorModes() []string {
	return []string{string(colorAuto), string(colorAlways), string(colorNever)}
}

// String implements pflag.Value.
func (m *colorMode) String() string {
	if *m == "" {
		return string(colorAuto)
	}
	return string(*m)
}

// Type implements pflag.Value.
func (m *colorMode) Type() string { return "when" }

// Set implements pflag.Value.
func (m *colorMode) Set(s string) error {
	if !slices.Contains(colorModes(), s) {
		return oneOf(s, colorModes())
	}
	*m = colorMode(s)
	return nil
}

// marshal is v in JSON.
func marshal(v any) (json.RawMessage, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return data, nil
}

// indented is JSON for people and machines.
func indented(data json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Indent(&b, unescapeHTML(data), "", "  "); err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// htmlEscapes are the three characters that encoding/json escapes for the sake
// of HTML: ">=14" is to be read in a terminal.
var htmlEscapes = []struct {
	escape string
	char   byte
}{{`\u003c`, '<'}, {`\u003e`, '>'}, {`\u0026`, '&'}}

// unescapeHTML takes those escapes out again.
func unescapeHTML(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u00`)) {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		if data[i] != '\\' || i+1 == len(data) {
			out = append(out, data[i])
			i++
			continue
		}
		char, n := data[i], 0
		for _, h := range htmlEscapes {
			if bytes.HasPrefix(data[i:], []byte(h.escape)) {
				char, n = h.char, len(h.escape)
			}
		}
		if n > 0 {
			out = append(out, char)
			i += n
			continue
		}
		out = append(out, data[i], data[i+1]) // an escaped backslash escapes nothing
		i += 2
	}
	return out
}

// yamlOf is JSON as YAML, with the fields in the same order.
func yamlOf(data json.RawMessage) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := ordered(d)
	if err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	out, err := yaml.MarshalWithOptions(v, yaml.IndentSequence(false))
	return []byte(shownText(string(out))), err // what is hidden stands in double quotes (exactly), where an escape is one
}

// ordered reads one JSON value; an object keeps the order of its fields.
func ordered(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return orderedObject(d)
		}
		return orderedArray(d)
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return n, nil
		}
		return t.Float64()
	case string:
		return exactly(t), nil
	}
	return t, nil
}

func orderedObject(d *json.Decoder) (any, error) {
	out := yaml.MapSlice{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := ordered(d)
		if err != nil {
			return nil, err
		}
		out = append(out, yaml.MapItem{Key: key, Value: v})
	}
	return out, closing(d)
}

func orderedArray(d *json.Decoder) (any, error) {
	out := []any{}
	for d.More() {
		v, err := ordered(d)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, closing(d)
}

func closing(d *json.Decoder) error {
	if _, err := d.Token(); err != nil && err != io.EOF {
		return err
	}
	return nil
}
