package manifest

import (
	"regexp"
	"strconv"

	"github.com/goccy/go-yaml"
)

// Encode writes a manifest in its canonical form: sections in the order of
// Manifest, maps by name, lists as they stand, nothing that was not said.
// Decode reads the same manifest back.
func Encode(m *Manifest) ([]byte, error) {
	return yaml.MarshalWithOptions(m, yaml.IndentSequence(true), yaml.CustomMarshaler[string](encodeString))
}

// bare is a text that every reader of YAML takes for a text without quotes;
// words are those it is not enough for (YAML 1.1 has more of them than 1.2).
var (
	bare  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._/-]*(:[A-Za-z0-9._/-]+)*$`)
	words = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|y|n|null)$`)
)

// encodeString quotes whatever is not plainly a text. The library decides that
// too, but not always as its own parser does.
func encodeString(s string) ([]byte, error) {
	if bare.MatchString(s) && !words.MatchString(s) {
		return []byte(s), nil
	}
	return []byte(strconv.Quote(s)), nil
}
