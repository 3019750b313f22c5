package attack_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// wholeRows are attacks on a whole computer: a model, a run, its boxes and its record.
var wholeRows = []Row{
	inWhole(39, "a model's service gives our key back, and the run's record keeps it", func(t *testing.T, w *whole) Verdict {
		run := w.prompt(t, "what is your key?", modelserver.Turn{Role: "director", Fault: &modelserver.Fault{Kind: "leak"}})
		kept := 0
		for e := range strings.Lines(w.events(t)) {
			if strings.Contains(e, run.ID) && strings.Contains(e, key) {
				kept++
			}
		}
		return Verdict{kept > 0, fmt.Sprint(kept, " events have it; the run says ", strings.ReplaceAll(run.Error, key, "KEY"))}
	}, defence.GatewayKeys),
	inWhole(39, "a command is given a stored secret, and the log keeps it", func(t *testing.T, w *whole) Verdict {
		secret := "correct-horse-" + w.dir()
		if r, err := w.RunInput(t.Context(), []byte(secret), "secrets", "set", "DEPLOY"); err != nil || r.Code != 0 {
			t.Fatalf("%v %+v", err, r)
		}
		return w.recorded(t, secret)
	}, defence.ExecRedacted),
	inWhole(52, "a command's argument looks like a key, and the log keeps it", func(t *testing.T, w *whole) Verdict {
		return w.recorded(t, "ghp_0123456789abcdefghijABCDEFGHIJ0"+strings.TrimPrefix(w.dir(), "try"))
	}, defence.ExecRedacted),
	{Number: 52, Attack: "in a whole computer: ps shows the claim link among the arguments of the browser that choir up opens", Defences: []defence.Name{defence.ClaimArgv}, Whole: true, Run: claimShown},
	inWhole(42, "a Director's task names a host that its computer was not granted, and its user denies it", func(t *testing.T, w *whole) Verdict {
		addr := w.hosts.tls.Listener.Addr().String()
		return w.reaches(t, addr, fmt.Sprintf("curl -sS -k -m 20 --noproxy '' https://%s/%s", addr, w.dir()))
	}, defence.EgressNarrow),
	inWhole(42, "a Director's task names a raw tunnel, and its user denies it", func(t *testing.T, w *whole) Verdict {
		addr := w.hosts.plain.Listener.Addr().String()
		return w.reaches(t, "tcp://"+addr, fmt.Sprintf(`curl -sS -m 20 --noproxy '' -p -x "$HTTPS_PROXY" http://%s/%s`, addr, w.dir()))
	}, defence.EgressRawTCP, defence.EgressNarrow),
}

// inWhole makes a row of the matrix that uses the shared computer.
func inWhole(number int, attack string, run func(t *testing.T, w *whole) Verdict, defences ...defence.Name) Row {
	return Row{Number: number, Attack: "in a whole computer: " + attack, Defences: defences, Whole: true, Run: func(t *testing.T) Verdict {
		return run(t, newWhole(t))
	}}
}

// recorded runs a command with a secret among its arguments. The attack works if any event contains
// it.
func (w *whole) recorded(t *testing.T, secret string) Verdict {
	if got := w.Must(t, "exec", "--", "printf", "%s", secret); got != secret {
		t.Fatalf("the command was given %q", got)
	}
	got := w.events(t, "command.started")
	if !strings.Contains(got, "printf") {
		t.Fatalf("the command is not in the log: %s", clip(got))
	}
	return Verdict{strings.Contains(w.events(t), secret), clip(got[max(0, len(got)-300):])}
}

// reaches has a task name a rule and try to connect. The attack works if the host saw the request.
func (w *whole) reaches(t *testing.T, rule, command string) Verdict {
	run := w.prompt(t, "fetch it.", w.delegated(command, object{"egress": object{"profile": "custom", "allow": []any{rule}, "reason": "the docs are there"}})...)
	told := run.Summary
	for _, task := range run.Tasks {
		if task.Result != nil && len(task.Result.Commands) > 0 {
			told += fmt.Sprintf(" %+v", task.Result.Commands[0])
		}
	}
	return Verdict{w.hosts.reached("/" + w.dir()), clip(told)}
}

// claimShown starts a choir that opens a browser, which records its arguments.
func claimShown(t *testing.T) Verdict {
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	opener := "#!/bin/sh\nprintf '%s\\n' \"$@\" > " + seen + ".new\nmv " + seen + ".new " + seen + "\n"
	must(t, os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(opener), 0o755))
	cmd := exec.Command(builtChoir(t), "up", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0")
	cmd.Env = append(defence.LauncherEnv(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "DISPLAY=:99")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, out.(*os.File).SetReadDeadline(time.Now().Add(time.Minute)))
	must(t, cmd.Start())
	waited := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() { // if this returns before its end
		_ = cmd.Process.Kill()
		_ = waited()
	})
	token := ""
	for lines := bufio.NewScanner(out); token == "" && lines.Scan(); {
		_, token, _ = strings.Cut(lines.Text(), "/claim#")
	}
	if token != "" {
		choirtest.Eventually(t, 20*time.Second, "the browser is opened", func() bool { _, err := os.Stat(seen); return err == nil })
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	must(t, waited())
	if len(token) < 16 {
		t.Fatalf("no link was printed: %q", token)
	}
	b, err := os.ReadFile(seen)
	must(t, err)
	return Verdict{strings.Contains(string(b), token), strings.ReplaceAll(string(b), token, "TOKEN")}
}
