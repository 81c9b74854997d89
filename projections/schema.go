package projections

import "embed"

// The schemas of what subscribers read are generated from the structs by the
// package's tests, so that the generator is no part of the program.
//
//go:generate go test -run ^TestGenerated -update
//go:embed schemas
var schemas embed.FS

// What subscribers read, as Schema names it.
const (
	SchemaBinding = "binding" // BindingDocument
	SchemaHolder  = "holder"  // HolderDocument
	SchemaChange  = "change"  // Change
)

// Schema returns the JSON Schema (draft 2020-12) of what subscribers read, or nil
// where there is none of that name. It allows fields it does not know.
func Schema(name string) []byte {
	b, err := schemas.ReadFile("schemas/" + name + ".v1.json")
	if err != nil {
		return nil
	}
	return b
}
