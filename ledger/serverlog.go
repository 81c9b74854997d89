package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/time/rate"
)

// serverLog is the embedded server's log: what it says goes to a slog.Logger,
// and its complaints are kept, since for some failures they are all there is:
// when JetStream cannot start, the server just never becomes ready
// (server/server.go, Start), and a stream that cannot be recovered is skipped.
type serverLog struct {
	logger *slog.Logger
	fatal  chan struct{} // closed at the first fatal error
	lines  *rate.Limiter // of complaints: who is let in can cause them at will

	mu         sync.Mutex
	complaints []string
	fatalText  string
	unsaid     int // complaints that were not logged since the last that was
}

// What is logged of complaints: so many at a time, and a second.
const (
	complaintBurst = 100
	complaintRate  = 2
)

const maxComplaints = 20

var _ server.Logger = (*serverLog)(nil)

func newServerLog(logger *slog.Logger) *serverLog {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &serverLog{logger: logger, fatal: make(chan struct{}), lines: rate.NewLimiter(complaintRate, complaintBurst)}
}

func (l *serverLog) complain(format string, v []any, fatal bool) string {
	text := fmt.Sprintf(format, v...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.complaints) < maxComplaints {
		l.complaints = append(l.complaints, text)
	}
	if fatal && l.fatalText == "" {
		l.fatalText = text
		close(l.fatal)
	}
	return text
}

func (l *serverLog) log(level slog.Level, format string, v []any) {
	if l.logger.Enabled(context.Background(), level) {
		l.logger.Log(context.Background(), level, fmt.Sprintf(format, v...), "from", "nats-server")
	}
}

// Noticef implements server.Logger; notices of the server are details here.
func (l *serverLog) Noticef(format string, v ...any) { l.log(slog.LevelDebug, format, v) }

// Debugf implements server.Logger.
func (l *serverLog) Debugf(format string, v ...any) { l.log(slog.LevelDebug, format, v) }

// Tracef implements server.Logger.
func (l *serverLog) Tracef(format string, v ...any) { l.log(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) {
	l.say(slog.LevelWarn, l.complain(format, v, false), "nats-server")
}

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) {
	l.say(slog.LevelError, l.complain(format, v, false), "nats-server")
}

// say logs a complaint, unless there are too many: then how many were not logged is
// said with the next.
func (l *serverLog) say(level slog.Level, text, from string) {
	l.mu.Lock()
	if !l.lines.Allow() {
		l.unsaid++
		l.mu.Unlock()
		return
	}
	unsaid := l.unsaid
	l.unsaid = 0
	l.mu.Unlock()
	more := []any{"from", from}
	if unsaid > 0 {
		more = append(more, "unsaid", unsaid)
	}
	l.logger.Log(context.Background(), level, text, more...)
}

// Fatalf implements server.Logger. It must not end the process: StartEmbedded
// returns the reason.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.logger.Error(l.complain(format, v, true), "from", "nats-server")
}

func (l *serverLog) reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatalText
}

func (l *serverLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.complaints...)
}
