package manifest

import (
	"github.com/goccy/go-yaml"
)

// Encode writes a manifest in its canonical form: sections in the order of
// Manifest, maps by name, lists as they stand, nothing that was not said.
// Decode reads the same manifest back.
func Encode(m *Manifest) ([]byte, error) {
	return yaml.MarshalWithOptions(m, yaml.IndentSequence(true))
}
