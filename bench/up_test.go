package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/test/choirtest"
)

// killedEnv has the data directory of the control plane that a process of this test starts.
const killedEnv = "BENCH_KILLED"

// TestAKilledBenchEndsWhatItMeasures shows that the control plane that a bench has started ends
// when the bench is killed and can't end it.
func TestAKilledBenchEndsWhatItMeasures(t *testing.T) {
	if data := os.Getenv(killedEnv); data != "" {
		e := &env{Options: Options{Binary: choirtest.Binary(t)}, dir: filepath.Dir(data)}
		p, err := e.up(t.Context(), data)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("started", p.PID)
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
		t.Fatal("it was not killed: ", p.Close())
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAKilledBenchEndsWhatItMeasures$")
	cmd.Env = append(os.Environ(), killedEnv+"="+filepath.Join(t.TempDir(), "data"))
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, aerr := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "started ")))
	if err != nil || aerr != nil {
		_ = cmd.Wait()
		t.Fatalf("it said %q: %v", line, err)
	}
	plane, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(plane)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(plane), Events: unix.POLLIN}}, int(startLimit.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Errorf("the control plane still runs (%v)", err)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return
	}
}
