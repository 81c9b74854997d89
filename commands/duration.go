package commands

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// inDays is a duration in days, and what follows in Go's form.
var inDays = regexp.MustCompile(`^([0-9]{1,6})d(.*)$`)

// ParseDuration reads a duration as Go writes it, or with days before it: 90m, 72h, 3d,
// 1d12h. Days after hours are no duration: nobody can tell what is meant.
func ParseDuration(text string) (time.Duration, error) {
	rest, total := text, time.Duration(0)
	if m := inDays.FindStringSubmatch(text); m != nil {
		days, err := strconv.Atoi(m[1])
		if err != nil || days > int(maxDuration/(24*time.Hour)) {
			return 0, fmt.Errorf("%s days are too many", m[1])
		}
		if total, rest = time.Duration(days)*24*time.Hour, m[2]; rest == "" {
			return total, nil
		}
		if rest[0] < '0' || rest[0] > '9' {
			return 0, fmt.Errorf("%q is no duration", text)
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, err
	}
	if d > maxDuration || d < -maxDuration || total+d > maxDuration {
		return 0, fmt.Errorf("%s is too long", text)
	}
	return total + d, nil
}

// maxDuration bounds what people ask for: a hundred years.
const maxDuration = 100 * 365 * 24 * time.Hour
