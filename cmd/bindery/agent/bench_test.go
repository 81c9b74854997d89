package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"bindery/commands"
	"bindery/projections"
)

// BenchmarkStart starts the agent of a node with 1,000 consumers, each with a
// binding and a secret, as a process. ms/start is until it acts, where everything
// is as it must be; ms/first until all is written and acknowledged, on an empty
// tree; MB is the most memory it had.
//
//	go test ./cmd/bindery/agent -run '^$' -bench Start -benchtime 10x
func BenchmarkStart(b *testing.B) {
	const consumers = 1000
	w := newWorld(b)
	s := w.spec("alpha")
	s.Hooks = ""
	w.must(os.MkdirAll(filepath.Join(s.Root, dirSecrets), 0o700))
	for i := range consumers {
		w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: fmt.Sprintf("wiki-%d", i)})
	}
	var asked []projections.CredentialView
	w.h.View(func(st *projections.State) {
		asked = st.ListCredentials(projections.CredentialFilter{State: "asked"}).Items
	})
	for _, c := range asked {
		name := fmt.Sprintf("%s-%d", c.Assignment, c.Generation)
		w.must(os.WriteFile(filepath.Join(s.Root, dirSecrets, name), []byte(`{"username":"u","password":"correct horse battery staple"}`), 0o600))
		w.do(commands.IssueCredential{Slot: c.Binding.String(), Generation: c.Generation, SecretRef: "file:" + name})
	}

	began := time.Now()
	first := startedAgent(w, s)
	w.eventually("all runs", w.settled)
	all := time.Since(began)
	first()

	var most int64
	b.ResetTimer()
	for range b.N {
		stop := startedAgent(w, s)
		b.StopTimer()
		time.Sleep(2 * time.Second) // it looks at all of them
		most = max(most, stop())
		b.StartTimer()
	}
	b.StopTimer()
	b.ReportMetric(float64(all.Milliseconds()), "ms/first")
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/start")
	b.ReportMetric(float64(most)/1e6, "MB")
}

// startedAgent returns when an agent acts; stop ends it and returns the most memory
// that it had, in bytes.
func startedAgent(w *world, s spec) (stop func() int64) {
	w.t.Helper()
	text, err := json.Marshal(s)
	w.must(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	w.must(err)
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil && err != io.EOF {
		w.t.Fatal(err)
	}
	return func() int64 {
		in.Close()
		w.must(cmd.Wait())
		unit := int64(1024) // getrusage(2) of Linux
		if runtime.GOOS == "darwin" {
			unit = 1
		}
		return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss * unit
	}
}
