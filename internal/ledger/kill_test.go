package ledger_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/ledger"
)

type acknowledged struct {
	sequence uint64
	digest   string
}

// runChild starts the child and collects what it acknowledges until it has ended. onAck is
// called with the number of acknowledgements so far.
func runChild(t *testing.T, witness map[string]acknowledged, orders string, onAck func(n int, p *os.Process)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+orders)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(pipe)
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			break // a half line is no acknowledgement
		}
		if err != nil {
			t.Fatal(err)
		}
		var id, digest string
		var seq uint64
		if _, err := fmt.Sscanf(line, "ACK %s %d %s", &id, &seq, &digest); err != nil {
			t.Fatalf("the child says %q", line)
		}
		witness[id] = acknowledged{seq, digest}
		if onAck != nil {
			onAck(n, cmd.Process)
		}
	}
	err = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the child was to be killed, but: %v\n%s", err, stderr.Bytes())
	}
}

// checkWitness opens the log and checks that it has everything that was acknowledged.
func checkWitness(t *testing.T, dir string, cid contract.CID, witness map[string]acknowledged, what string) {
	t.Helper()
	b := openBus(t, dir)
	l := openLog(t, b, ledger.Options{CID: cid})
	seen := map[string]bool{}
	for _, e := range wholeLog(t, l) {
		if seen[e.ID] {
			t.Errorf("%s: event %s is there twice", what, e.ID)
		}
		seen[e.ID] = true
		if w, ok := witness[e.ID]; ok && (w.sequence != e.Sequence || w.digest != fmt.Sprintf("%x", contract.Digest(e))) {
			t.Errorf("%s: event %d was acknowledged as %d", what, e.Sequence, w.sequence)
		}
	}
	for id, w := range witness {
		if !seen[id] {
			t.Errorf("%s: acknowledged event %d (%s) is lost", what, w.sequence, id)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestNothingAcknowledgedIsLostToKill(t *testing.T) {
	survived, kills := 0, 0
	// The process is killed again and again, each time at another point. Each size of
	// bursts has a log of its own, because the whole log is read after each kill.
	for _, burst := range []int{0, 4, tooLong} {
		dir, cid, witness := t.TempDir(), contract.NewCID(), map[string]acknowledged{}
		for _, point := range []string{"stamped", "sent", "acknowledged", "accepted"} {
			runChild(t, witness, fmt.Sprintf("dir=%s cid=%s workers=3 burst=%d die=%s at=%d", dir, cid, burst, point, 5+rand.IntN(20)), nil)
			checkWitness(t, dir, cid, witness, fmt.Sprintf("killed when %s, bursts of %d", point, burst))
			kills++
		}
		for range 2 {
			at := 1 + rand.IntN(150)
			runChild(t, witness, fmt.Sprintf("dir=%s cid=%s workers=4 burst=%d", dir, cid, burst), func(n int, p *os.Process) {
				if n == at {
					if err := p.Kill(); err != nil {
						t.Error(err)
					}
				}
			})
			checkWitness(t, dir, cid, witness, fmt.Sprintf("killed at acknowledgement %d, bursts of %d", at, burst))
			kills++
		}
		survived += len(witness)
	}
	t.Logf("%d acknowledged events survived %d kills", survived, kills)
}

// TestACallIsStoredWholeOrNotAtAll kills a process that appends calls of several drafts, as
// they are sent and at random, so that the embedded server dies while it stores them. The
// log must then have all drafts of each call, or none.
func TestACallIsStoredWholeOrNotAtAll(t *testing.T) {
	dir, cid := t.TempDir(), contract.NewCID()
	witness := map[string]acknowledged{}
	for round := range 16 {
		orders := fmt.Sprintf("dir=%s cid=%s workers=3 burst=3", dir, cid)
		at, wait := 1+rand.IntN(30), time.Duration(rand.IntN(3000))*time.Microsecond
		if round < 4 {
			orders += fmt.Sprintf(" die=sent at=%d", 3+rand.IntN(20))
			at = 0
		}
		runChild(t, witness, orders, func(n int, p *os.Process) {
			if n == at { // a little later, so that it dies anywhere within the next calls
				time.AfterFunc(wait, func() {
					if err := p.Kill(); err != nil {
						t.Error(err)
					}
				})
			}
		})
		checkWitness(t, dir, cid, witness, fmt.Sprintf("round %d", round))
	}
	b := openBus(t, dir)
	l := openLog(t, b, ledger.Options{CID: cid})
	parts := map[string]map[string]bool{}
	for _, e := range wholeLog(t, l) {
		if e.Type != "prompt.submitted" {
			continue
		}
		p, err := l.Payload(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		// The child's texts are "worker call draft x…" of the process in e.Epoch.
		word := strings.Fields(p.(*contract.PromptSubmitted).Text)
		if n, _ := strconv.Atoi(word[1]); n%5 != 4 {
			continue
		}
		call := fmt.Sprint(e.Epoch, " ", word[0], " ", word[1])
		if parts[call] == nil {
			parts[call] = map[string]bool{}
		}
		parts[call][word[2]] = true
	}
	if len(parts) == 0 {
		t.Fatal("no call of several drafts was stored")
	}
	for call, got := range parts {
		if len(got) != 3 {
			t.Errorf("call %s: %d of 3 drafts are stored", call, len(got))
		}
	}
	t.Logf("%d calls of 3 drafts", len(parts))
}
