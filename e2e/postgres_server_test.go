package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresBin is the directory of Postgres's programs, "" where there is none.
var postgresBin = sync.OnceValue(func() string {
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); len(found) > 0 { // Debian's
		slices.SortFunc(found, func(a, b string) int { return majorOf(a) - majorOf(b) })
		return filepath.Dir(found[len(found)-1])
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path)
	}
	return ""
})

// postgresPath is the PATH of what calls psql: the program itself, not Debian's wrapper,
// which takes longer than a hook.
func postgresPath() string { return "PATH=" + postgresBin() + ":" + os.Getenv("PATH") }

// majorOf is the version in Debian's path of a program.
func majorOf(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return n
}

// needsPostgres skips a test where Postgres is not installed. Whoever says that this is
// CI installs it (.ci/run), and no test is left out there.
func needsPostgres(t *testing.T) {
	t.Helper()
	if postgresBin() != "" {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("Postgres is not installed: apt-get install postgresql")
	}
	t.Skip("Postgres is not installed")
}

// serverUser is who runs servers: they refuse to run as root.
var serverUser = sync.OnceValues(func() (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		return asUser(uid, gid), nil
	}
	return nil, errors.New("root has no other user to run Postgres as")
})

// asUser lets a process run as another user.
func asUser(uid, gid int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// openDir makes a directory that other users may pass through, with a short name: the
// path of a socket has at most 107 bytes.
func openDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bindery")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// superPassword is the password of the superuser postgres of all servers.
const superPassword = "super-1f0a"

// adminPassword is that of the role bindery, which the hooks log in as.
const adminPassword = "admin-77c2"

// emptyCluster makes a data directory that each server begins with a copy of.
var emptyCluster = sync.OnceValues(func() (string, error) {
	as, err := serverUser()
	if err != nil {
		return "", err
	}
	// The program has to be reached by other users, too.
	top := filepath.Dir(program)
	dir := filepath.Join(top, "cluster")
	word := filepath.Join(top, "password")
	err = errors.Join(os.Chmod(top, 0o755), os.Mkdir(dir, 0o700), os.WriteFile(word, []byte(superPassword+"\n"), 0o644))
	if err == nil && as != nil {
		err = os.Chown(dir, int(as.Credential.Uid), int(as.Credential.Gid))
	}
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(postgresBin(), "initdb"), "-D", dir, "-U", "postgres", "-A", "scram-sha-256",
		"--pwfile", word, "--no-sync", "-E", "UTF8", "--locale", "C")
	cmd.SysProcAttr, cmd.Dir = as, top
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return dir, nil
})

// postgres is a server of a test.
type postgres struct {
	name string // what the row in the table marker says in each of its databases
	dir  string
	data string
	port int

	cmd  *exec.Cmd
	done chan error
}

// newPostgres starts an empty server: each database that is made there has a table
// marker, with the server's name, and there is the role bindery for hooks.
func newPostgres(t testing.TB, name string) *postgres {
	t.Helper()
	from, err := emptyCluster()
	if err != nil {
		t.Fatal(err)
	}
	p := &postgres{name: name, dir: openDir(t)}
	p.data = filepath.Join(p.dir, "data")
	p.copyData(t, from)
	p.start(t)
	for _, database := range []string{"template1", "postgres"} {
		p.exec(t, database, "CREATE TABLE marker (server text); GRANT SELECT ON marker TO PUBLIC; INSERT INTO marker VALUES ('"+name+"')")
	}
	p.exec(t, "postgres", "CREATE ROLE bindery LOGIN CREATEROLE CREATEDB PASSWORD '"+adminPassword+"' IN ROLE pg_signal_backend")
	return p
}

func (p *postgres) copyData(t testing.TB, from string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, p.data).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// moved starts a server of another name with a copy of all the data of p, which runs on:
// only its marker tells who is who.
func (p *postgres) moved(t testing.TB, name string) *postgres {
	t.Helper()
	n := &postgres{name: name, dir: openDir(t)}
	n.data = filepath.Join(n.dir, "data")
	as, err := serverUser()
	if err == nil && as != nil {
		err = os.Chown(n.dir, int(as.Credential.Uid), int(as.Credential.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(postgresBin(), "pg_basebackup"), "-D", n.data, "-d", p.url("postgres", "postgres", superPassword),
		"--checkpoint=fast", "--no-sync")
	cmd.SysProcAttr, cmd.Dir = as, n.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n.start(t)
	for _, database := range n.list(t, "postgres", "SELECT datname FROM pg_database WHERE datallowconn") {
		n.exec(t, database, "UPDATE marker SET server = '"+name+"'")
	}
	return n
}

// start starts the server and waits until it lets somebody in.
func (p *postgres) start(t testing.TB) {
	t.Helper()
	as, err := serverUser()
	if err != nil {
		t.Fatal(err)
	}
	if as != nil {
		if err := os.Chown(p.dir, int(as.Credential.Uid), int(as.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	for p.cmd == nil {
		p.port = freePort(t)
		p.launch(t, as)
	}
}

// launch starts it on p.port; p.cmd is nil after it where somebody else took the port.
func (p *postgres) launch(t testing.TB, as *syscall.SysProcAttr) {
	t.Helper()
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(postgresBin(), "postgres"), "-D", p.data, "-p", strconv.Itoa(p.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+p.dir, "-c", "fsync=off", "-c", "max_wal_senders=3",
		"-c", "log_connections=on", "-c", "log_statement=all", "-c", "log_min_messages=info", "-c", "log_line_prefix=%p %u@%d ")
	cmd.SysProcAttr, cmd.Dir, cmd.Stderr = as, p.dir, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if conn, err := p.connect("postgres", "postgres", superPassword); err == nil {
			_ = conn.Close(context.Background())
			break
		}
		if len(done) > 0 {
			if strings.Contains(p.log(t), "Address already in use") {
				return
			}
			t.Fatalf("the server %s ended:\n%s", p.name, p.log(t))
		}
		if time.Now().After(end) {
			t.Fatalf("the server %s lets nobody in:\n%s", p.name, p.log(t))
		}
	}
	p.cmd, p.done = cmd, done
	t.Cleanup(func() { p.stop(t) })
}

// stop ends the server, and whatever is connected to it.
func (p *postgres) stop(t testing.TB) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGINT) // a fast shutdown
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		t.Errorf("the server %s does not end", p.name)
	}
	p.cmd = nil
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (p *postgres) endpoint() string { return "127.0.0.1:" + strconv.Itoa(p.port) }

func (p *postgres) url(user, database, password string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable&connect_timeout=10", user, password, p.endpoint(), database)
}

// connect logs in.
func (p *postgres) connect(user, database, password string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return pgx.Connect(ctx, p.url(user, database, password))
}

// exec runs statements as the superuser.
func (p *postgres) exec(t testing.TB, database, sql string) {
	t.Helper()
	conn, err := p.connect("postgres", database, superPassword)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// list is one column, as the superuser sees it.
func (p *postgres) list(t testing.TB, database, sql string) []string {
	t.Helper()
	conn, err := p.connect("postgres", database, superPassword)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(context.Background(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// logins are the roles of consumers that can log in, sorted.
func (p *postgres) logins(t testing.TB) []string {
	t.Helper()
	return p.list(t, "postgres", "SELECT rolname::text FROM pg_roles WHERE rolcanlogin AND rolname NOT IN ('postgres', 'bindery') ORDER BY rolname COLLATE \"C\"")
}

func (p *postgres) logFile() string { return filepath.Join(p.dir, "log") }

func (p *postgres) log(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(p.logFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// turnedAway matches what a server says when it lets somebody not in: a wrong password, a
// role that is not there or may not log in, a database that is not the role's.
var turnedAway = regexp.MustCompile(`(?m)^.*FATAL:  (?:password authentication failed|role .* (?:does not exist|is not permitted to log in)|permission denied for database|no pg_hba|database .* does not exist|sorry|too many|remaining connection).*$`)

// refusedLogins are the lines of the log about failed logins.
func (p *postgres) refusedLogins(t testing.TB) []string {
	t.Helper()
	return turnedAway.FindAllString(p.log(t), -1)
}
