package ledger_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
)

// An acknowledgement must come after the sync of what it acknowledges, which is checked in
// the system calls that strace shows. A control run with syncing turned off shows that the
// check can fail.
func TestAcknowledgedMeansSynced(t *testing.T) {
	choirtest.NotInBox(t, "tracing of system calls")
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("this test needs strace: install it, for example with: apt-get install strace")
	}
	for _, burst := range []int{0, 60} {
		acks, early := traceChild(t, strace, "", burst)
		if acks < 20 || early != 0 {
			t.Errorf("bursts of %d: %d of %d acknowledgements came before the sync", burst, early, acks)
		}
	}
	if acks, early := traceChild(t, strace, "sync=off", 0); acks < 20 || early == 0 {
		t.Errorf("control: with syncing off, %d of %d acknowledgements came before the sync; the check is blind", early, acks)
	}
}

// traceChild counts the child's acknowledgements, and how many of them it wrote while a
// message file had bytes that no completed sync covered.
func traceChild(t *testing.T, strace, extra string, burst int) (acks, early int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-s", "16", "-o", trace, "-e", "trace=write,pwrite64,writev,pwritev,fsync,fdatasync,sync_file_range,openat", self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=dir=%s cid=%s workers=1 count=20 burst=%d %s", childEnv, t.TempDir(), contract.NewCID(), burst, extra))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("strace: %v\n%s", err, out)
	}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var c checker
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		c.line(lines.Text())
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return c.acks, c.early
}

var (
	callPattern = regexp.MustCompile(`^(\d+) +(\w+)\((\d+)<([^>]*)>`)
	donePattern = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>`)
)

// checker follows writes and syncs of the stream's message files.
type checker struct {
	clock   int
	pending map[string]call // unfinished calls, by thread
	dirty   map[string]int  // file → when its last write began
	written bool            // since the last acknowledgement
	acks    int
	early   int
}

type call struct {
	name, file string
	began      int
}

func (c *checker) line(s string) {
	if c.pending == nil {
		c.pending, c.dirty = map[string]call{}, map[string]int{}
	}
	c.clock++
	if m := donePattern.FindStringSubmatch(s); m != nil {
		if p, ok := c.pending[m[1]]; ok {
			delete(c.pending, m[1])
			c.finished(p, s)
		}
		return
	}
	m := callPattern.FindStringSubmatch(s)
	if m == nil {
		return
	}
	p := call{name: m[2], file: m[4], began: c.clock}
	if p.name == "write" && m[3] == "1" {
		if strings.Contains(s, `"ACK `) {
			c.acks++
			if len(c.dirty) > 0 || !c.written {
				c.early++
			}
			c.written = false
		}
		return
	}
	if !strings.Contains(p.file, "/streams/EVENTS-") || !strings.HasSuffix(p.file, ".blk") {
		return
	}
	if !strings.Contains(p.name, "sync") {
		c.dirty[p.file], c.written = c.clock, true
	}
	if strings.Contains(s, "<unfinished") {
		c.pending[m[1]] = p
		return
	}
	c.finished(p, s)
}

// finished handles a system call that has returned. A sync covers only writes that began
// before it did.
func (c *checker) finished(p call, s string) {
	if (p.name == "fsync" || p.name == "fdatasync") && strings.HasSuffix(strings.TrimSpace(s), "= 0") && c.dirty[p.file] < p.began {
		delete(c.dirty, p.file)
	}
}
