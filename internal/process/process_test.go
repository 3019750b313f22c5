package process_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"choir.dev/choiros/internal/process"
)

func TestAProcessIsKnownUntilItEnds(t *testing.T) {
	if id := process.Self(); id != process.ID(os.Getpid()) || process.Living(id) != os.Getpid() {
		t.Errorf("this process is %q", id)
	}
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id := process.ID(cmd.Process.Pid)
	if process.Living(id) != cmd.Process.Pid {
		t.Errorf("%q is not known to live", id)
	}
	number, _, _ := strings.Cut(id, " ")
	for _, other := range []string{"", "x", number, number + " 1", "0 0", "-1 5"} {
		if pid := process.Living(other); pid != 0 {
			t.Errorf("%q is process %d", other, pid)
		}
	}
	// A process that has ended counts as gone before it is waited for, as its files are closed.
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err == nil {
		t.Fatal("cat said something")
	}
	for process.ID(cmd.Process.Pid) != "" { // the process closes its last file shortly before it ends
	}
	if process.Living(id) != 0 {
		t.Error("it lives on")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
