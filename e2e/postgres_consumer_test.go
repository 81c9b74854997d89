package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// set are the files of a slot, read as one.
type set struct {
	host, port, database, username, password string
	dir                                      string // that they were in
}

func (s set) url() string {
	return fmt.Sprintf("postgres://%s:%s@%s:%s/%s?sslmode=disable&connect_timeout=20", s.username, s.password, s.host, s.port, s.database)
}

// consumer is an application that looks at its binding each time it does something.
type consumer struct {
	name string
	root string // its SERVICE_BINDING_ROOT

	mu   sync.Mutex
	seen map[set]bool // every login that it has read
}

func (w *world) consumer(name string) *consumer {
	return &consumer{name: name, root: filepath.Join(w.nodes[pgConsumers[name]].root(), "bindings", "by-name", name), seen: map[set]bool{}}
}

// held calls do with what the binding says. Meanwhile the hook does not say that the
// consumer has followed (docs/postgres/consumer/default).
func (c *consumer) held(do func(set) error) error {
	dir, err := os.Open(c.root)
	if err != nil {
		return err
	}
	defer dir.Close()
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_SH)
	}
	if err != nil {
		return err
	}
	s, err := c.read()
	if errors.Is(err, os.ErrNotExist) {
		s, err = c.read() // the files changed in between
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.seen[s] = true
	c.mu.Unlock()
	return do(s)
}

// read reads the files of one set.
func (c *consumer) read() (s set, err error) {
	if s.dir, err = filepath.EvalSymlinks(filepath.Join(c.root, "db")); err != nil {
		return s, err
	}
	for file, into := range map[string]*string{"host": &s.host, "port": &s.port, "database": &s.database, "username": &s.username, "password": &s.password} {
		data, err := os.ReadFile(filepath.Join(s.dir, file))
		if err != nil {
			return s, err
		}
		*into = string(data)
	}
	return s, nil
}

// server asks on a new connection which server it is on.
func (c *consumer) server() (string, error) {
	var server string
	err := c.held(func(s set) error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		conn, err := pgx.Connect(ctx, s.url())
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		return conn.QueryRow(ctx, "SELECT server FROM marker").Scan(&server)
	})
	return server, err
}

// load is consumers that query without end.
type load struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	queries int
	failed  []string
}

// newLoad lets each consumer write and read: on a connection for each query, and on one
// that is kept as long as the binding says the same.
func newLoad(t testing.TB, consumers ...*consumer) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop}
	for _, c := range consumers {
		if err := c.held(func(s set) error { return (&kept{}).query(s, false, "CREATE TABLE IF NOT EXISTS note (server text)") }); err != nil {
			t.Fatal(err)
		}
		for keep, pause := range map[bool]time.Duration{false: 80 * time.Millisecond, true: 20 * time.Millisecond} {
			l.done.Go(func() {
				var k kept
				defer k.close()
				for ctx.Err() == nil {
					err := c.held(func(s set) error { return k.query(s, keep, "INSERT INTO note SELECT server FROM marker") })
					l.mu.Lock()
					if l.queries++; err != nil {
						l.failed = append(l.failed, c.name+": "+err.Error())
					}
					l.mu.Unlock()
					time.Sleep(pause)
				}
			})
		}
	}
	t.Cleanup(l.end)
	return l
}

// kept is a connection that is kept.
type kept struct {
	conn *pgx.Conn
	as   set
}

func (k *kept) close() {
	if k.conn != nil {
		_ = k.conn.Close(context.Background())
		k.conn = nil
	}
}

// query runs a statement on the connection, or on a new one where the binding says
// something else by now.
func (k *kept) query(s set, keep bool, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if k.conn != nil && k.as != s {
		k.close()
	}
	if k.conn == nil {
		conn, err := pgx.Connect(ctx, s.url())
		if err != nil {
			return err
		}
		k.conn, k.as = conn, s
	}
	if !keep {
		defer k.close()
	}
	_, err := k.conn.Exec(ctx, sql)
	if err != nil {
		k.close()
	}
	return err
}

// end ends the load, and waits for what runs.
func (l *load) end() {
	l.stop()
	l.done.Wait()
}

// clean ends the load and checks that no query failed; more than none were made.
func (l *load) clean(t testing.TB) {
	t.Helper()
	l.end()
	if len(l.failed) > 0 {
		t.Errorf("%d of %d queries failed:\n%s", len(l.failed), l.queries, strings.Join(l.failed[:min(10, len(l.failed))], "\n"))
	}
	if l.queries < 10 {
		t.Errorf("%d queries are no load", l.queries)
	}
	t.Logf("%d queries", l.queries)
}

// letsIn reports whether a server lets somebody in, and fails the test where it does not
// say why not.
func (s set) letsIn(t testing.TB) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url())
	if err == nil {
		_ = conn.Close(ctx)
		return true
	}
	var said *pgconn.PgError
	if !errors.As(err, &said) || said.Code != "28P01" { // invalid_password; of a role that is gone, too
		t.Errorf("%s at %s:%s: %v", s.username, s.host, s.port, err)
	}
	return false
}
