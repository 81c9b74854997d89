package events

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	long := strings.Repeat("a", MaxName)
	for _, s := range []string{"a", "pg-a", "a1", "a--b", "n0", long, "alle", "self-service"} {
		if err := CheckName(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, tt := range []struct{ name, suggest string }{
		{"PG-A", "pg-a"},
		{"Pg_Main", "pg-main"},
		{"pg.a", "pg-a"},
		{"pg a", "pg-a"},
		{"pg-", "pg"},
		{"-pg", "pg"},
		{" pg\r\n", "pg"},
		{"pg\x00a", "pg-a"},
		{"pgä", "pg"},
		{"ä", ""},
		{long + "a", long},
		{strings.Repeat("a", MaxName-1) + "-bc", strings.Repeat("a", MaxName-1)},
		{"", ""},
		{".", ""},
		{"*", ""},
		{">", ""},
		{"-", ""},
		{"7", ""},
		{"1pg", ""},
		{"\xff", ""},
		{"\r\n", ""},
		{"\u0430", ""}, // Cyrillic
		{"ALL", ""},    // the reserved one is no help
	} {
		err := CheckName(tt.name)
		var ne *NameError
		if !errors.As(err, &ne) {
			t.Errorf("%q: %v, want a NameError", tt.name, err)
			continue
		}
		if ne.Suggest != tt.suggest || ne.Reserved || ne.Why == "" {
			t.Errorf("%q: %+v, want the suggestion %q", tt.name, ne, tt.suggest)
		}
		if ne.Suggest != "" && CheckName(ne.Suggest) != nil {
			t.Errorf("%q: the suggestion %q is no name", tt.name, ne.Suggest)
		}
		if strings.ContainsAny(err.Error(), "\r\n\x00") {
			t.Errorf("%q: the message has control characters: %q", tt.name, err)
		}
	}
	for _, s := range ReservedNames() {
		var ne *NameError
		if err := CheckName(s); !errors.As(err, &ne) || !ne.Reserved || ne.Name != s {
			t.Errorf("%q: %v, want reserved", s, err)
		}
	}
	if err := CheckName(strings.Repeat("x", 10_000)); len(err.Error()) > 300 {
		t.Errorf("a message of %d bytes", len(err.Error()))
	}
}
