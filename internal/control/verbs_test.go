package control_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestComputersAreMade shows that asking again for a new computer does not make another one, that
// it belongs to its maker, and that a request that names no computer is then refused because there
// are several.
func TestComputersAreMade(t *testing.T) {
	w := open(t)
	c, ctx := w.client(), within(t)
	cid := contract.NewCID()
	first, err := c.Create(ctx, cid, "Two")
	if err != nil || first.ID != cid || first.Name != "Two" || first.Handle != "two" {
		t.Fatalf("made: %+v, %v", first, err)
	}
	if again, err := c.Create(ctx, cid, "Two"); err != nil || again.ID != cid || again.Handle != first.Handle {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	other, err := c.Create(ctx, "", "Two")
	if err != nil || other.ID == cid || other.Handle == first.Handle {
		t.Errorf("another of that name: %+v, %v", other, err)
	}
	list, err := c.Computers(ctx)
	if err != nil || len(list) != 3 {
		t.Fatalf("listed: %+v, %v", list, err)
	}
	if _, err := c.Info(ctx); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "several") {
		t.Errorf("without a name: %v", err)
	}
	if info, err := c.Computer(cid).Info(ctx); err != nil || info.ID != cid {
		t.Errorf("by its name: %+v, %v", info, err)
	}
	for _, id := range []contract.CID{"../../../../etcx", "short"} {
		if _, err := c.Create(ctx, id, "Mine"); !fault.Is(err, fault.Invalid) {
			t.Errorf("with the id %q: %v", id, err)
		}
	}
	if _, err := c.Create(ctx, "", strings.Repeat("x", 101)); !fault.Is(err, fault.Invalid) {
		t.Errorf("with a name that is too long: %v", err)
	}
}

func TestEveryVerbThroughTheClient(t *testing.T) {
	w := open(t)
	c, ctx := w.client(), within(t)
	if h, err := c.Health(ctx); err != nil || h.Version != "test" {
		t.Fatalf("health: %+v, %v", h, err)
	}
	list, err := c.Computers(ctx)
	if err != nil || len(list) != 1 || list[0].Name != "Studio" || !strings.Contains(list[0].Desktop, ".desk.choir.localhost:") {
		t.Fatalf("computers: %+v, %v", list, err)
	}
	acted, err := c.Prompt(ctx, view.Prompt{Text: "make it blue"})
	if err != nil || acted.Run == "" || acted.Sequence != 1 {
		t.Fatalf("prompt: %+v, %v", acted, err)
	}
	run, err := c.Run(ctx, acted.Run)
	if err != nil || run.Prompt != "make it blue" {
		t.Fatalf("run: %+v, %v", run, err)
	}
	if _, err := c.Steer(ctx, acted.Run, "bluer"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Command(ctx, acted.Run, contract.CommandPause); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Answer(ctx, acted.Run, view.Answer{Question: "q", Answer: "yes"}); err != nil {
		t.Fatal(err)
	}
	runs, more, err := c.Runs(ctx, 0, 10)
	if err != nil || len(runs) != 1 || more {
		t.Fatalf("runs: %+v, %v, %v", runs, more, err)
	}
	done := make(chan error, 1)
	go func() {
		r, err := c.Wait(ctx, acted.Run)
		if err == nil && r.Status != contract.RunDone {
			err = errors.New("waited for " + string(r.Status))
		}
		done <- err
	}()
	w.machine().report(acted.Run)
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	if _, err := c.Put(ctx, view.Put{Path: "workspace/a b.txt"}, strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	rc, got, err := c.Get(ctx, "workspace/a b.txt")
	if err != nil || got.Size != 5 {
		t.Fatalf("get: %+v, %v", got, err)
	}
	b, err := io.ReadAll(rc)
	check(t, rc.Close())
	if string(b) != "hello" || err != nil {
		t.Fatalf("get: %q, %v", b, err)
	}
	if files, err := c.Files(ctx, "workspace"); err != nil || len(files) != 1 {
		t.Fatalf("files: %+v, %v", files, err)
	}
	if err := c.Remove(ctx, "workspace/a b.txt", "", false); err != nil {
		t.Fatal(err)
	}
	if added, err := c.AddTar(ctx, "repo", "/home/me/repo", strings.NewReader("tar bytes")); err != nil || added.Bytes != 9 || added.Origin != "/home/me/repo" {
		t.Fatalf("add: %+v, %v", added, err)
	}
	if _, err := c.AddURL(ctx, view.AddRequest{URL: "https://example.com/r.git"}); err != nil {
		t.Fatal(err)
	}
	if cps, _, err := c.Checkpoints(ctx, 0, 0); err != nil || len(cps) != 1 {
		t.Fatalf("checkpoints: %+v, %v", cps, err)
	}
	if cp, err := c.Checkpoint(ctx, "mine"); err != nil || !cp.Created {
		t.Fatalf("checkpoint: %+v, %v", cp, err)
	}
	if _, err := c.Diff(ctx, view.DiffRequest{From: "abcdef0"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Restore(ctx, view.RestoreRequest{To: strings.Repeat("a", 40), Paths: []string{"choiros"}, DryRun: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Undo(ctx, false); err != nil {
		t.Fatal(err)
	}
	if got := w.machine().restored; len(got) != 2 || !got[0].DryRun || got[0].By.Name() != contract.Person(w.owner.ID).Name() || !got[1].Undo {
		t.Fatalf("restored: %+v", got)
	}
	doc := contract.NewID()
	if list, more, err := c.Proposals(ctx, doc, false, 0, 0); err != nil || len(list) != 1 || list[0].Document != doc || list[0].Status != "open" || more {
		t.Fatalf("proposals: %+v, %v, %v", list, more, err)
	}
	if list, more, err := c.Proposals(ctx, doc, true, 10, 5); err != nil || len(list) != 1 || list[0].Status != "dismissed" || !more {
		t.Fatalf("all proposals: %+v, %v, %v", list, more, err)
	}
	if list, _, err := c.Proposals(ctx, doc, false, 9, 5); err != nil || len(list) != 0 {
		t.Fatalf("older proposals: %+v, %v", list, err)
	}
	if p, err := c.Proposal(ctx, doc, proposed.ID); err != nil || p.On != 2 || p.Overlaps != 1 || p.Diff == "" || p.Body == "" {
		t.Fatalf("proposal: %+v, %v", p, err)
	}
	if done, err := c.Resolve(ctx, doc, proposed.ID, true); err != nil || done.ID != proposed.ID || done.Resolution != contract.ProposalAccepted || done.Revision != 3 {
		t.Fatalf("accepted: %+v, %v", done, err)
	}
	if done, err := c.Resolve(ctx, doc, proposed.ID, false); err != nil || done.Resolution != contract.ProposalDismissed {
		t.Fatalf("dismissed: %+v, %v", done, err)
	}
	if err := c.SetSecret(ctx, "anthropic", "sk-canary"); err != nil {
		t.Fatal(err)
	}
	if list, err := c.Secrets(ctx); err != nil || len(list) != 1 || list[0].ID != "anthropic" {
		t.Fatalf("secrets: %+v, %v", list, err)
	}
	if err := c.RemoveSecret(ctx, "anthropic"); err != nil || len(w.system.secrets) != 0 {
		t.Fatal(err)
	}
	if m, err := c.TestModel(ctx, "rehearsal/rehearsal"); err != nil || !m.OK {
		t.Fatalf("model: %+v, %v", m, err)
	}
	if m, err := c.Models(ctx); err != nil || len(m) != 1 {
		t.Fatalf("models: %+v, %v", m, err)
	}
	if r, err := c.Rebuild(ctx, true); err != nil || !r.Check || !r.Equal {
		t.Fatalf("rebuild: %+v, %v", r, err)
	}
	if f, err := c.Doctor(ctx); err != nil || len(f) != 1 {
		t.Fatalf("doctor: %+v, %v", f, err)
	}
	if strings.Contains(w.log.String(), "sk-canary") {
		t.Error("the log shows a secret")
	}
}

func TestEventsFollowWithoutGaps(t *testing.T) {
	w := open(t)
	c, ctx := w.client(), within(t)
	for range 3 {
		if _, err := c.Prompt(ctx, view.Prompt{Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	var got []uint64
	for e, err := range c.Events(ctx, client.EventsOptions{After: 1, Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Sequence); e.Sequence == 3 {
			w.machine().append(contract.Draft{Actor: contract.System(), Type: "secret.set", Data: &contract.SecretSet{Name: "n"}})
		}
		if e.Sequence == 4 {
			break
		}
	}
	if len(got) != 3 || got[0] != 2 || got[2] != 4 {
		t.Fatalf("got %v", got)
	}
	n := 0
	for e, err := range c.Events(ctx, client.EventsOptions{Types: []string{"secret.set"}}) {
		if err != nil || e.Type != "secret.set" {
			t.Fatal(e.Type, err)
		}
		n++
	}
	if n != 1 {
		t.Fatalf("%d events of the type", n)
	}
	run := contract.NewID()
	for range 3 {
		w.machine().append(contract.Draft{Actor: contract.Person(""), Type: "run.steered", Subject: "s", Run: run, Data: &contract.RunSteered{Text: "x"}})
		w.machine().append(contract.Draft{Actor: contract.System(), Type: "secret.set", Data: &contract.SecretSet{Name: "n"}})
	}
	for _, o := range []client.EventsOptions{{Run: run}, {Run: run, Limit: 3, Follow: true}, {Subject: "s", Types: []string{"run.steered"}}, {Run: run, Task: "t"}} {
		n := 0
		for e, err := range c.Events(ctx, o) {
			if err != nil || e.Run != run {
				t.Fatal(e.Type, err)
			}
			n++
		}
		if want := 3; o.Task == "" && n != want || o.Task != "" && n != 0 {
			t.Fatalf("%+v: %d events", o, n)
		}
	}
	for _, err := range c.Events(ctx, client.EventsOptions{Types: []string{"no.such"}}) {
		if fe := contract.AsFieldError(err); !fault.Is(err, fault.Invalid) || fe == nil || fe.Field != "type" {
			t.Fatalf("unknown type: %v", err)
		}
	}
}

func TestExec(t *testing.T) {
	w := open(t)
	c, ctx := w.client(), within(t)
	var out, errs bytes.Buffer
	var started uint64
	exit, err := c.Exec(ctx, view.ExecRequest{Argv: []string{"echo", "hi"}}, view.ExecIO{Stdout: &out, Stderr: &errs, Started: func(_ string, seq uint64) { started = seq }})
	if err != nil || exit.Code != 3 || out.String() != "hi\n" || errs.String() != "to stderr" || started == 0 {
		t.Fatalf("echo: %+v, %v, %q, %q, %d", exit, err, out.String(), errs.String(), started)
	}
	big := strings.Repeat("0123456789abcdef", 64<<10)
	out.Reset()
	if _, err := c.Exec(ctx, view.ExecRequest{Argv: []string{"cat"}}, view.ExecIO{Stdin: strings.NewReader(big), Stdout: &out}); err != nil || out.String() != big {
		t.Fatalf("cat: %v, %d bytes", err, out.Len())
	}
	if _, err := c.Exec(ctx, view.ExecRequest{Argv: []string{"missing"}}, view.ExecIO{}); !fault.Is(err, fault.Unavailable) || fault.HintOf(err) != "Try again." {
		t.Fatalf("missing: %v", err)
	}
	if _, err := c.Exec(ctx, view.ExecRequest{Argv: []string{"cat"}, Cwd: "../x"}, view.ExecIO{}); !fault.Is(err, fault.Invalid) {
		t.Fatalf("cwd: %v", err)
	}
}

// TestWhatFollowsAnExecIsNoRequest shows that a command's input is not read as a request once the
// command is refused or has ended: no other request comes through its connection.
func TestWhatFollowsAnExecIsNoRequest(t *testing.T) {
	w := open(t)
	for body, want := range map[string]int{
		"{\"argv\":[\"echo\"]}\nmore":                   http.StatusUnprocessableEntity,
		"{\"argv\":[\"missing\"],\"stdin\":true}\nmore": http.StatusServiceUnavailable,
		"{\"argv\":[\"cat\"],\"stdin\":true}\nmore":     http.StatusOK,
	} {
		req, err := http.NewRequestWithContext(within(t), http.MethodPost, w.console()+"/api/computers/-/exec", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+w.token)
		req.Header.Set("Content-Type", "application/x-ndjson")
		res, err := w.loopback().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != want || !res.Close {
			t.Errorf("%s: %d, %q, %v; the connection is closed: %t", body, res.StatusCode, said, err, res.Close)
		}
	}
}

func TestExecEndsWhenTheClientLeaves(t *testing.T) {
	for name, stdin := range map[string]io.Reader{"without stdin": nil, "in the middle of stdin": blocked{}} {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			ctx, leave := context.WithCancel(within(t))
			_, err := w.client().Exec(ctx, view.ExecRequest{Argv: []string{"sleep"}}, view.ExecIO{Stdin: stdin, Started: func(string, uint64) { leave() }})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("left with %v", err)
			}
			select {
			case <-w.machine().killed:
			case <-time.After(20 * time.Second):
				t.Fatal("the command goes on")
			}
		})
	}
}

// blocked is a standard input from which nothing ever comes.
type blocked struct{}

func (blocked) Read([]byte) (int, error) { select {} }

func TestErrorsNameCodeHintAndField(t *testing.T) {
	w := open(t)
	c, ctx := w.client(), within(t)
	_, err := c.Run(ctx, contract.NewID())
	if !fault.Is(err, fault.NotFound) || fault.HintOf(err) != "List them with choir runs." || err.Error() == "" || strings.Contains(err.Error(), "memory.Run") {
		t.Errorf("no such run: %v", err)
	}
	_, err = c.Run(ctx, "nonsense")
	if fe := contract.AsFieldError(err); !fault.Is(err, fault.Invalid) || fe == nil || fe.Field != "run" {
		t.Errorf("bad id: %v", err)
	}
	_, err = c.Resolve(ctx, contract.NewID(), contract.NewID(), true)
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("no such proposal: %v", err)
	}
	_, err = c.Proposal(ctx, contract.NewID(), "nonsense")
	if fe := contract.AsFieldError(err); !fault.Is(err, fault.Invalid) || fe == nil || fe.Field != "proposal" {
		t.Errorf("a bad proposal: %v", err)
	}
	_, _, err = c.Proposals(ctx, "nonsense", false, 0, 0)
	if fe := contract.AsFieldError(err); fe == nil || fe.Field != "document" {
		t.Errorf("a bad document: %v", err)
	}
	_, err = c.Prompt(ctx, view.Prompt{ID: contract.DeriveID(contract.NewID(), "run"), Text: "x"})
	if fe := contract.AsFieldError(err); fe == nil || fe.Field != "id" {
		t.Errorf("a derived id: %v", err)
	}
	_, err = c.Prompt(ctx, view.Prompt{Text: "x", Budget: contract.Budget{CostUSD: -1}})
	if fe := contract.AsFieldError(err); fe == nil || fe.Field != "budget.cost_usd" {
		t.Errorf("a negative budget: %v", err)
	}
	w.machine().fail = errors.New("open /var/lib/secret/path: boom")
	_, err = c.Info(ctx)
	if !fault.Is(err, fault.Internal) || strings.Contains(err.Error(), "secret/path") || !strings.Contains(w.log.String(), "secret/path") {
		t.Errorf("an error of ours: %v", err)
	}
	for _, path := range []string{"../etc/passwd", "/etc/passwd", ".git/config", "a//b"} {
		if _, _, err := c.Get(ctx, path); !fault.Is(err, fault.Invalid) {
			t.Errorf("get %q: %v", path, err)
		}
	}
	nobody, err := client.New("http://console.choir.localhost:1", w.token, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nobody.Info(ctx); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Errorf("nobody there: %v", err)
	}
}
