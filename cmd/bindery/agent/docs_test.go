package agent

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const docs = "../../../docs/"

// The page shows the hooks as they are, and names every field that they read.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(docs + "agent.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	shown := regexp.MustCompile("(?s)<!-- file: (\\S+) -->\n```sh\n(.*?)```\n").FindAllStringSubmatch(page, -1)
	if len(shown) != 2 {
		t.Errorf("%d files are shown", len(shown))
	}
	for _, m := range shown {
		if text, err := os.ReadFile(docs + m[1]); err != nil || string(text) != m[2] {
			t.Errorf("%s is not shown as it is: %v", m[1], err)
		}
	}
	for _, v := range []any{hookInput{}, consumerInput{}, consumerSlot{}, resolveInput{}} {
		of := reflect.TypeOf(v)
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, `"`+name+`"`) {
				t.Errorf("docs/agent.md does not name %s of %s", name, of.Name())
			}
		}
	}
}
