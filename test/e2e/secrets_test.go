package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestTheClaimTokenIsInNoArgument shows that the browser is opened on a file that only its owner
// can read, and that is removed when choir ends.
func TestTheClaimTokenIsInNoArgument(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	opener := "#!/bin/sh\nfor f in \"$@\"; do echo \"arg $f\"; [ -f \"$f\" ] && stat -c 'mode %a' \"$f\" && sed 's/^/page /' \"$f\"; done > " + seen + ".new\nmv " + seen + ".new " + seen + "\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(opener), 0o755); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	cmd := exec.Command(choirtest.Binary(t), "up", "--data", data, "--listen", "127.0.0.1:0")
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "DISPLAY=:99"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	token := make(chan string, 1)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			if _, after, ok := strings.Cut(s.Text(), "/claim#"); ok {
				token <- after
			}
		}
		close(token)
	}()
	secret, ok := <-token
	if !ok || len(secret) < 16 {
		t.Fatalf("no link was printed: %q", secret)
	}
	choirtest.Eventually(t, 20*time.Second, "the browser is opened", func() bool { _, err := os.Stat(seen); return err == nil })
	b, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(line, "arg ") && strings.Contains(line, secret) {
			t.Errorf("the token is in an argument: %s", line)
		}
	}
	if !strings.Contains(string(b), "mode 600") || !strings.Contains(string(b), "/claim#"+secret) {
		t.Errorf("the file does not lead there, or others read it:\n%s", b)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(data, "open.html")); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
}

// TestCommandsAreRecordedWithoutSecrets shows that secrets of the vault, and what looks like a
// secret, are in no event and in no checkpoint's message, although the command got them.
func TestCommandsAreRecordedWithoutSecrets(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	const stored, shaped = "correct-horse-battery", "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	if r, err := in.RunInput(t.Context(), []byte(stored), "secrets", "set", "DEPLOY"); err != nil || r.Code != 0 {
		t.Fatalf("%v %+v", err, r)
	}
	out := in.Must(t, "exec", "--", "sh", "-c", "TOKEN="+stored+" GH="+shaped+" sh -c 'echo $TOKEN $GH $0 > workspace/got; cat workspace/got' "+stored)
	if !strings.Contains(out, stored+" "+shaped+" "+stored) {
		t.Errorf("the command itself got %q", out)
	}
	for _, verb := range [][]string{{"events"}, {"checkpoints", "--json"}} {
		if all := in.Must(t, verb...); strings.Contains(all, stored) || strings.Contains(all, shaped) {
			t.Errorf("choir %s shows a secret", verb[0])
		}
	}
	started := eventsOf(t, in, "command.started")
	if d := data[contract.CommandStarted](t, started[0]); len(d.Argv) != 3 || d.Argv[0] != "sh" || strings.Count(d.Argv[2], "[key]") != 3 {
		t.Errorf("recorded %q", d.Argv)
	}
	if strings.Contains(in.Logs(), stored) {
		t.Error("choir's own log shows a secret")
	}
}

// TestBytesThatLeaveAreMetered shows that the bytes of a command's tunnel are recorded by host.
func TestBytesThatLeaveAreMetered(t *testing.T) {
	t.Parallel()
	friend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "%d%s", n, strings.Repeat("x", 50_000))
	}))
	defer friend.Close()
	addr := friend.Listener.Addr().String()
	in := choirtest.Start(t, choirtest.Options{Env: []string{"CHOIR_EGRESS_ALLOW=" + addr, "CHOIR_EGRESS_ALLOW_PRIVATE=" + addr}})
	in.Must(t, "exec", "--", "sh", "-c", fmt.Sprintf("head -c 20000 /dev/zero | curl -sS -k -m 20 --noproxy '' --data-binary @- https://%s > /dev/null", addr))
	var got []view.Traffic
	choirtest.Eventually(t, 20*time.Second, "the tunnel is metered", func() bool {
		if err := json.Unmarshal([]byte(in.Must(t, "egress", "--json")), &got); err != nil {
			t.Fatal(err)
		}
		return len(got) == 1
	})
	if h := got[0]; h.ID != addr || h.Tunnels != 1 || h.Sent < 20_000 || h.Sent > 40_000 || h.Received < 50_000 || h.Received > 80_000 {
		t.Errorf("%+v", h)
	}
	events := eventsOf(t, in, "egress.metered")
	if d := data[contract.EgressMetered](t, events[len(events)-1]); !d.Ended || d.Kind != contract.BoxTerminal {
		t.Errorf("%+v", d)
	}
}
