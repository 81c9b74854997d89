package agent

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// endLeftovers kills the processes of this user that have a variable in their
// environment: what an agent that was killed has left running. Two hooks for one
// thing at once would be worse than one that is cut off: it is run again.
func endLeftovers(variable string) int {
	found, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	n := 0
	for _, p := range found {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile("/proc/" + p.Name() + "/environ") // of others it cannot be read
		if err != nil || !hasVariable(env, variable) {
			continue
		}
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n
}

func hasVariable(env []byte, variable string) bool {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if string(v) == variable {
			return true
		}
	}
	return false
}
