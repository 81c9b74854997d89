package events

import (
	"embed"
	"strconv"
)

// The schemas are generated from the payloads' structs by the package's tests,
// so that the generator is no part of the program.
//
//go:generate go test -run ^TestGenerated -update
//go:embed schemas
var schemas embed.FS

// Schema returns the JSON Schema (draft 2020-12) of the payload of t, or nil
// where there is none. It allows unknown fields, as Decode does. What Decode
// checks beyond it (a rule between two fields, a version, an endpoint) is the
// business of the payload's Check.
func Schema(t Type) []byte {
	b, err := schemas.ReadFile("schemas/" + t.file() + ".json")
	if err != nil {
		return nil
	}
	return b
}

// file is the name of what is generated for t: provider.relocated.v1.
func (t Type) file() string { return t.Short() + ".v" + strconv.Itoa(t.Version) }
