package commands

import (
	"testing"
	"time"
)

// Kind: durations are guessed. What is no duration in days, or as Go writes it, or both
// in order of size, is none.
func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "72h": 72 * time.Hour, "3d": 72 * time.Hour, "1d12h": 36 * time.Hour, "1d1h30m": 25*time.Hour + 30*time.Minute, "0d": 0, "0s": 0,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"1h30d", "2h3d", "1d2d", "1.5d", "d", "", "3", "-1d", "1d-2h", "1d+2h", "3D", "1dd", "99999999d", "40000d", "1d 2h", "3 d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
