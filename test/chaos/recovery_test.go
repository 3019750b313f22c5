package chaos_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// recoveryPoints are passed while a damaged data directory is opened or recovered, each by the verb
// named here, or on the console while the other computer is awake. Once the decision is written
// down, a start completes the recovery; before that, choir recover begins again.
var recoveryPoints = []struct {
	point, by string
	decided   bool
}{
	{"recovery.arranging", "up", false}, {"recovery.arranged", "up", false},
	{"recovery.refilled", "console", false},
	{"recovery.journaled", "recover", true}, {"recovery.old.moved", "console", true}, {"recovery.new.placed", "recover", true},
	{"recovery.state.moved", "recover", true}, {"recovery.head.written", "console", true}, {"recovery.done", "recover", true},
}

// TestRecoveryIsKilled kills the process that opens or recovers a damaged log at each of its steps:
// the other computer is unchanged, nothing that can be recovered is lost, and the damaged files are
// kept.
func TestRecoveryIsKilled(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	template, a, b := damagedTemplate(t, bin)
	wantA, wantB := stateRows(t, template, a), stateRows(t, template, b)
	for _, p := range recoveryPoints {
		t.Run(p.point, func(t *testing.T) {
			data, armed := filepath.Join(t.TempDir(), "data"), t.TempDir()
			if out, err := exec.Command("cp", "-a", template, data).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			block := cutLog(t, data, a)
			kept := len(wantA)
			if p.point == "recovery.state.moved" {
				// The state does not have the remaining events either.
				kept = 0
				if err := os.Remove(filepath.Join(data, "computers", string(a), "state.sqlite")); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(armed, "arm"), []byte(p.point+" 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"recover", "--data", data}
			if p.by != "recover" {
				args = []string{"up", "--data", data, "--listen", "127.0.0.1:0", "--no-open", "--json"}
			}
			cmd := exec.CommandContext(t.Context(), bin, args...)
			cmd.Env = append(os.Environ(), "CRASHPOINTS="+armed)
			var said bytes.Buffer
			cmd.Stderr = &said
			stdout, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.by == "console" {
				recoverOnTheConsole(t, stdout, a)
			}
			if _, err := io.Copy(io.Discard, stdout); err != nil {
				t.Error(err)
			}
			err = cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("choir %s was not killed: %v: %s", p.by, err, said.String())
			}
			if !p.decided {
				// Until then the damaged computer is refused, and the other one is awake.
				in, err := choirtest.TryStart(t, choirtest.Options{Data: data, Binary: bin})
				if err != nil {
					t.Fatal(err)
				}
				if got := states(t, in); got[a] != view.StateDamaged || got[b] != view.StateAwake {
					t.Fatalf("after the crash they are %v", got)
				}
				in.Stop(t)
				if out, err := exec.CommandContext(t.Context(), bin, "recover", "--data", data).CombinedOutput(); err != nil {
					t.Fatalf("choir recover: %v: %s", err, out)
				}
			}
			in, err := choirtest.TryStart(t, choirtest.Options{Data: data, Binary: bin})
			if err != nil {
				t.Fatal(err)
			}
			if got := states(t, in); got[a] != view.StateAwake || got[b] != view.StateAwake {
				t.Fatalf("in the end they are %v", got)
			}
			begins(t, in, b, wantB)
			notes := begins(t, in, a, wantA[:kept])
			if len(notes) != 1 || notes[0].Aside == "" || kept == 0 && (notes[0].Lost == 0 || len(notes[0].Gone) == 0) {
				t.Fatalf("its log says of its recovery: %+v", notes)
			}
			found, err := filepath.Glob(filepath.Join(data, notes[0].Aside, "nats", "*", "*", "*", "*", "msgs", "1.blk"))
			if more, merr := filepath.Glob(filepath.Join(data, notes[0].Aside, "nats", "*", "*", "*", "msgs", "1.blk")); err == nil {
				found, err = append(found, more...), merr
			}
			if err != nil || len(found) != 1 {
				t.Fatalf("the old log is kept as %v (%v)", found, err)
			}
			if old, err := os.ReadFile(found[0]); err != nil || string(old) != block {
				t.Errorf("the old log is not kept as it was found (%v)", err)
			}
			if left, err := filepath.Glob(filepath.Join(data, "nats.new*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

// recoverOnTheConsole asks a control plane that has just started to recover a computer; the kill
// happens during the request or later.
func recoverOnTheConsole(t *testing.T, stdout io.Reader, cid contract.CID) {
	t.Helper()
	var line struct{ URL, Token string }
	if err := json.NewDecoder(stdout).Decode(&line); err != nil {
		t.Fatal(err)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(line.URL, "http://"), "/")
	_, port, _ := strings.Cut(host, ":")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:"+port+"/api/computers/"+string(cid)+"/recover", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	req.Header.Set("Authorization", "Bearer "+line.Token)
	if res, err := http.DefaultClient.Do(req); err == nil {
		if err := res.Body.Close(); err != nil || res.StatusCode >= 300 {
			t.Errorf("the answer is %d, %v", res.StatusCode, err)
		}
	}
}

// damagedTemplate makes a data directory of two computers, stopped in an orderly way.
func damagedTemplate(t *testing.T, bin string) (data string, a, b contract.CID) {
	t.Helper()
	data = filepath.Join(t.TempDir(), "data")
	in := choirtest.Start(t, choirtest.Options{Data: data, Binary: bin})
	for cid := range states(t, in) {
		a = cid
	}
	in.Stop(t)
	b = contract.NewCID()
	if err := os.Mkdir(filepath.Join(data, "computers", string(b)), 0o700); err != nil {
		t.Fatal(err)
	}
	in, err := choirtest.TryStart(t, choirtest.Options{Data: data, Binary: bin})
	if err != nil {
		t.Fatal(err)
	}
	states(t, in)
	for _, cid := range []contract.CID{a, b} {
		in.Must(t, "exec", "--computer", string(cid), "--", "sh", "-c", "echo one > workspace/one")
	}
	in.Stop(t)
	return data, a, b
}

// states wakes computers that are asleep, and waits until no computer is waking.
func states(t *testing.T, in *choirtest.Instance) map[contract.CID]view.ComputerState {
	t.Helper()
	c, err := client.New(in.URL, in.Token, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out map[contract.CID]view.ComputerState
	choirtest.Eventually(t, patience, "the computers wake or say why not", func() bool {
		list, err := c.Computers(t.Context())
		if err != nil || len(list) == 0 {
			return false
		}
		out = map[contract.CID]view.ComputerState{}
		for _, of := range list {
			switch out[of.ID] = of.State; of.State {
			case view.StateAsleep:
				_, _ = c.Computer(of.ID).Wake(t.Context(), view.WakeRequest{}) // the next request shows the outcome
				return false
			case view.StateWaking:
				return false
			}
		}
		return true
	})
	return out
}

func stateRows(t *testing.T, data string, cid contract.CID) []string {
	t.Helper()
	var out []string
	err := state.ReadRows(t.Context(), filepath.Join(data, "computers", string(cid), "state.sqlite"), func(e contract.Event, _ []byte) error {
		b, err := contract.Stored(e)
		out = append(out, string(b))
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("%d rows, %v", len(out), err)
	}
	return out
}

// cutLog cuts a third off a computer's log and returns what is left of it.
func cutLog(t *testing.T, data string, cid contract.CID) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(data, "nats/jetstream/*/streams/EVENTS-"+string(cid)+"/msgs/1.blk"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	b = b[:len(b)*2/3]
	if err := os.WriteFile(found[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// begins compares the beginning of a log with what it was, and returns the recoveries that the log
// records.
func begins(t *testing.T, in *choirtest.Instance, cid contract.CID, want []string) []contract.LogRecovered {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(in.Must(t, "events", "--json", "--computer", string(cid))), "\n")
	if len(lines) < len(want) || strings.Join(lines[:len(want)], "\n") != strings.Join(want, "\n") {
		t.Fatalf("the log of %s has %d events and does not begin with the %d it had", cid, len(lines), len(want))
	}
	var notes []contract.LogRecovered
	for i, line := range lines {
		var e contract.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Sequence != uint64(i+1) {
			t.Fatalf("event %d of %s: %v, %s", i+1, cid, err, fmt.Sprintf("%.200s", line))
		}
		var n contract.LogRecovered
		if e.Type == "log.recovered" {
			if err := json.Unmarshal(e.Data, &n); err != nil {
				t.Fatal(err)
			}
			notes = append(notes, n)
		}
	}
	return notes
}
