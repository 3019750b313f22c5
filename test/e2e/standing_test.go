package e2e_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// note is a task of one turn, which a Director asks for.
var note = object{"kind": "agent", "goal": "write a note", "tools": []any{"write"}, "verify": object{"profile": "none"}}

// onTerminal runs choir on a terminal, and returns what it says there.
func onTerminal(t *testing.T, in *choirtest.Instance, args ...string) (*exec.Cmd, *heard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, choirtest.Binary(t), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=vt220", "CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + in.Token}
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	said := &heard{}
	var shown sync.WaitGroup
	shown.Go(func() { _, _ = io.Copy(said, tty) }) // until the terminal is closed
	t.Cleanup(func() { cancel(); _ = cmd.Wait(); _ = tty.Close(); shown.Wait() })
	return cmd, said
}

// TestWhoWaitsIsToldWhatHappens shows that choir prompt --wait on a terminal says at once which run it is, and then what
// becomes of it; and that a paused run is called paused everywhere, with who paused it and since when.
func TestWhoWaitsIsToldWhatHappens(t *testing.T) {
	t.Parallel()
	in, _ := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: join(director(delegate(note)), worker(modelserver.Turn{Text: "later", Hold: "gate"}))})
	_, said := onTerminal(t, in, "prompt", "--wait", "write a note")
	said.await(t, "choir: run ")
	_, rest, _ := strings.Cut(said.String(), "choir: run ")
	said.await(t, "choir: task agent: write a note: begun")
	run := strings.TrimSpace(rest[:min(len(rest), 36)])
	if err := contract.ValidID("run", run); err != nil {
		t.Fatalf("%v: %q", err, said)
	}
	in.Must(t, "run", "pause", run)
	said.await(t, "choir: paused")
	if got := in.Must(t, "runs"); !strings.Contains(got, run+"  paused") {
		t.Errorf("choir runs says\n%s", got)
	}
	if got := in.Must(t, "runs", run); !strings.Contains(got, "paused by person:Owner since ") || !strings.Contains(got, "choir run resume "+run) {
		t.Errorf("choir runs RUN says\n%s", got)
	}
	if r := runOf(t, in, run); r.Paused == nil || r.Paused.By.Kind() != contract.KindPerson || r.Paused.Since.IsZero() {
		t.Errorf("it is paused: %+v", r.Paused)
	}
	if r, err := in.Run(t.Context(), "wait", run, "--timeout", "1s"); err != nil || r.Code != 5 || !strings.Contains(r.Stderr, "is paused; let it go on with: choir run resume "+run) || strings.Contains(r.Stderr, "choir: run ") {
		t.Errorf("choir wait, of a paused run and without a terminal: %+v, %v", r, err)
	}
	_, second := onTerminal(t, in, "wait", run)
	second.await(t, "choir: run "+run)
	second.await(t, "choir: paused")
	in.Must(t, "run", "resume", run)
	said.await(t, "choir: goes on")
	second.await(t, "choir: goes on")
	if r := runOf(t, in, run); r.Paused != nil {
		t.Errorf("it goes on, and is paused: %+v", r.Paused)
	}
	in.Must(t, "run", "cancel", run)
	said.await(t, "choir: task agent: write a note: ended as ")
	said.await(t, "choir: cancelled")
}

// TestWhatARunWaitsForIsShown shows that a run that waits for its model says which one, why, since when and until when,
// and who waits for it is told so.
func TestWhatARunWaitsForIsShown(t *testing.T) {
	t.Parallel()
	down := modelserver.Turn{Text: "I am broken", Fault: &modelserver.Fault{Kind: "status", Status: 529}, Repeat: true}
	in, _ := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: join(director(delegate(note)), worker(down))}, "CHOIR_MODELS_PATIENCE_S=600")
	_, said := onTerminal(t, in, "prompt", "--wait", "write a note")
	said.await(t, "choir: waits for its model anthropic/")
	run := in.Must(t, "runs", "--limit", "1")[:36]
	got := in.Must(t, "runs", run)
	for _, want := range []string{"waits for", "its model anthropic/", ", since ", ", given up at "} {
		if !strings.Contains(got, want) {
			t.Errorf("choir runs RUN does not say %q:\n%s", want, got)
		}
	}
	in.Must(t, "run", "cancel", run)
}

// TestAFailedTaskSaysWhyWhereOneLooks shows that the sentence why a task failed is in choir runs, in what choir prompt --wait
// prints, in the report and in the JSON of choir wait.
func TestAFailedTaskSaysWhyWhereOneLooks(t *testing.T) {
	t.Parallel()
	in, _ := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: join(director(delegate(note), report("done", "Noted.")), worker(finish("failed", "The paper is out.")))})
	r, err := in.Run(t.Context(), "prompt", "--wait", "write a note")
	if err != nil || r.Code != 1 || !strings.Contains(r.Stdout, "ended as failed: The paper is out.") {
		t.Fatalf("%+v, %v", r, err)
	}
	run := in.Must(t, "runs", "--limit", "1")[:36]
	if got := in.Must(t, "runs", run); !strings.Contains(got, "why") || strings.Count(got, "The paper is out.") < 2 {
		t.Errorf("choir runs RUN says\n%s", got)
	}
	res, err := in.Run(t.Context(), "wait", run, "--json")
	if err != nil || !strings.Contains(res.Stdout, `"reason": "The paper is out.`) {
		t.Errorf("choir wait --json says %+v, %v", res, err)
	}
}

// otherwise runs choir with another address or token than the instance's.
func otherwise(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, choirtest.Binary(t), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestStopStopsWhatIsMeant shows that choir stop ends nothing where CHOIR_URL names another control plane than the one that
// has the data directory.
func TestStopStopsWhatIsMeant(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	out, err := otherwise(t, []string{"CHOIR_DATA=" + in.Data, "CHOIR_URL=http://127.0.0.1:9", "CHOIR_TOKEN=x"}, "stop")
	if err == nil || !strings.Contains(out, "CHOIR_URL names http://127.0.0.1:9") || !strings.Contains(out, "--data") {
		t.Errorf("%q, %v", out, err)
	}
	usable(t, in)
}

// TestWhatAProgramOfModelsIsTold shows that choir mcp with a token that is not valid ends with the API's sentence, and begins
// no session.
func TestWhatAProgramOfModelsIsTold(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	out, err := otherwise(t, []string{"CHOIR_URL=" + in.URL, "CHOIR_TOKEN=choir_wrong"}, "mcp")
	if err == nil || !strings.Contains(out, "the API token is not valid") {
		t.Errorf("%q, %v", out, err)
	}
}
