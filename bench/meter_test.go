package bench

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMeterCountsEverything shows that a meter counts the syncs of a process, of its children, and
// of their children in their own namespaces, whether or not they have ended, and of no other
// process.
func TestMeterCountsEverything(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	script := fmt.Sprintf(`echo x > %[1]s; sync %[1]s; (sync -d %[1]s; sync -f %[1]s); bwrap --unshare-all --bind / / sh -c "sync %[1]s; sync %[1]s"`, file)
	for _, times := range []int64{1, 3} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprintf("for i in $(seq %d); do %s; done", times, script))
		done := make(chan struct{})
		m, err := metered(cmd.Start, done)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		close(done)
		got, ok := m.read()
		if !ok {
			t.Skip("nothing can be counted here: ", m.why)
		}
		if got.syncs != 5*times || got.processor <= 0 {
			t.Errorf("%d rounds of 5 syncs: counted %d, and %s of the processor", times, got.syncs, got.processor)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
