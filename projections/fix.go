package projections

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Fix is what helps: mostly one command that somebody can type next. It is a value: who
// shows it knows how the ledger is reached from there, and how a shell quotes. Of Verb,
// Again, Program and Advice at most one is set; the zero value is no fix.
type Fix struct {
	Verb    string    `json:"verb,omitempty"`    // of bindery, "binding rebind"
	Args    []string  `json:"args,omitempty"`    // of the verb; in capitals what is to be filled in
	Flags   []FixFlag `json:"flags,omitempty"`   // of the verb, or of the command that is run again
	Again   bool      `json:"again,omitempty"`   // the command that was given, with Flags
	Without []string  `json:"without,omitempty"` // and without these
	Program []string  `json:"program,omitempty"` // another program, with its arguments
	Advice  string    `json:"advice,omitempty"`  // what no command does

	Line *string `json:"-"` // as it is shown; in JSON it is this text then
}

// FixFlag is a flag of a Fix: its name with dashes, and its value; without one it is a
// switch.
type FixFlag struct {
	Name  string  `json:"name"`
	Value *string `json:"value,omitempty"`
}

// Do is a command of bindery.
func Do(verb string, args ...string) Fix { return Fix{Verb: verb, Args: args} }

// Again is the command that was given.
func Again() Fix { return Fix{Again: true} }

// Program is a command of another program.
func Program(words ...string) Fix { return Fix{Program: words} }

// Advise is what no command does.
func Advise(text string) Fix { return Fix{Advice: text} }

// With adds a flag, with a value where one is given.
func (f Fix) With(flag string, value ...string) Fix {
	added := FixFlag{Name: flag}
	if len(value) > 0 {
		added.Value = &value[0]
	}
	f.Flags = append(slices.Clone(f.Flags), added)
	return f
}

// But leaves a flag out of the command that was given.
func (f Fix) But(flag string) Fix {
	f.Without = append(slices.Clone(f.Without), flag)
	return f
}

// IsZero reports whether nothing is known that helps.
func (f Fix) IsZero() bool {
	return f.Verb == "" && len(f.Flags) == 0 && !f.Again && len(f.Program) == 0 && f.Advice == "" && f.Text() == ""
}

// Words are the verb, its arguments and its flags, each as a shell would give it.
func (f Fix) Words() []string {
	return slices.Concat(strings.Fields(f.Verb), f.Args, f.FlagWords())
}

// FlagWords are the flags with their values, each as a shell would give it.
func (f Fix) FlagWords() (words []string) {
	for _, flag := range f.Flags {
		words = append(words, flag.Name)
		if flag.Value != nil {
			words = append(words, *flag.Value)
		}
	}
	return words
}

// String is what a log shows: words without a shell's quotes, and without what only the
// caller knows.
func (f Fix) String() string {
	switch {
	case f.Line != nil:
		return *f.Line
	case f.Advice != "":
		return f.Advice
	case f.Again:
		out := strings.Join(append([]string{"the same command"}, f.FlagWords()...), " ")
		if len(f.Without) > 0 {
			out += " without " + strings.Join(f.Without, " ")
		}
		return out
	}
	return strings.Join(slices.Concat(f.Words(), f.Program), " ")
}

// Shown is the fix as text. In JSON it is that text from then on: what people and their
// programs read is a command to paste, and between programs of bindery it is a value.
func (f Fix) Shown(text string) Fix {
	return Fix{Line: &text}
}

// Text is what Shown was told; else "".
func (f Fix) Text() string {
	if f.Line == nil {
		return ""
	}
	return *f.Line
}

// fixFields is a Fix without its methods.
type fixFields Fix

// MarshalJSON implements json.Marshaler.
func (f Fix) MarshalJSON() ([]byte, error) {
	if f.Line != nil {
		return json.Marshal(*f.Line)
	}
	return json.Marshal(fixFields(f))
}

// UnmarshalJSON implements json.Unmarshaler, for both forms.
func (f *Fix) UnmarshalJSON(data []byte) error {
	*f = Fix{}
	if bytes.HasPrefix(data, []byte{'"'}) {
		return json.Unmarshal(data, &f.Line)
	}
	return json.Unmarshal(data, (*fixFields)(f))
}
