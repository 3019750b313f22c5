package e2e_test

import (
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestALoopHearsOfWhatItsUserWritesMeanwhile shows through the binary that a loop is told, in its next request and once, that its user
// changed a file that it has read, and that they took it back; not of a file that it has nothing to do with, nor of what is shown live of
// its own work; that it can look at what they wrote; and that kill -9 loses and repeats nothing of it.
func TestALoopHearsOfWhatItsUserWritesMeanwhile(t *testing.T) {
	t.Parallel()
	list := func(path string) modelserver.Turn { return modelserver.Turn{Calls: call("ls", object{"path": path})} }
	held := func(turn modelserver.Turn, gate string) modelserver.Turn {
		turn.Hold = gate
		return turn
	}
	write := modelserver.Turn{Calls: call("write", object{"path": "choiros/src/own.ts", "content": "export const own = 1\n"})}
	s := modelserver.New(modelserver.Script{Turns: turnsOf("associate", "look after the text",
		modelserver.Turn{Calls: call("read", object{"path": "workspace/t/a.txt"})},
		held(write, "read"),
		modelserver.Turn{Calls: call("recall", object{"call": "changed-1"})},
		held(list("workspace"), "told"), list("workspace"), // the first one's process is killed
		held(list("artifacts"), "again"), list("artifacts"), // and so is this one's
		finish("ok", "It is looked after."),
	)}).Start()
	t.Cleanup(s.Close)
	env := append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_LOOPS_DIRECT_WORDS=30")
	in := choirtest.Start(t, choirtest.Options{Env: env})
	puts := func(path, content string) {
		t.Helper()
		if r, err := in.RunInput(t.Context(), []byte(content), "files", "put", "-", path); err != nil || r.Code != 0 {
			t.Fatalf("put: %+v, %v", r, err)
		}
	}
	reached := func(gate string) {
		t.Helper()
		choirtest.Eventually(t, time.Minute, "the loop asks its model: "+gate, func() bool { return s.Held(gate) })
	}
	again := func() {
		t.Helper()
		in.Kill()
		<-in.Done()
		in = choirtest.Start(t, choirtest.Options{Data: in.Data, Env: env})
	}
	puts("workspace/t/a.txt", "one\n")
	puts("workspace/t/b.txt", "one\n")
	var asked prompted
	in.JSON(t, &asked, "prompt", "--json", "look after the text")

	reached("read")
	puts("workspace/t/b.txt", "two\n")
	puts("workspace/t/a.txt", "two\n")
	s.Release("read")
	reached("told")
	told := s.Requests()[2].Text
	const note, first = "The computer says (changed files, ", `"workspace/t/a.txt" changed by the user at `
	if strings.Count(told, note) != 1 || strings.Count(told, first) != 1 || strings.LastIndex(told, first) < len(told)-200 {
		t.Errorf("the next request does not end in what its user did:\n%s", told)
	}
	in.Must(t, "restore", "--path", "workspace/t/a.txt")
	again()
	reached("again")
	before := s.Requests()[len(s.Requests())-1].Text
	again()
	done := waits(t, in, nil, "wait", "--json", asked.Run)
	if done.code != 0 {
		t.Fatalf("%+v", done)
	}
	requests := s.Requests()
	last := requests[len(requests)-1].Text
	for _, want := range []string{first, note + "1)", note + "2)"} {
		if n := strings.Count(last, want); n != 1 && want != first || n != 2 && want == first {
			t.Errorf("%q is told %d times", want, n)
		}
	}
	for _, not := range []string{note + "3)", `"workspace/t/b.txt" changed`, `own.ts" changed`} {
		if strings.Contains(last, not) {
			t.Errorf("it is told: %q", not)
		}
	}
	same := 0
	for _, r := range requests {
		if r.Text == before {
			same++
		}
	}
	if same != 2 || !strings.HasPrefix(last, before) {
		t.Errorf("the conversation was made %d times as it was before kill -9", same)
	}
	if _, shown, _ := strings.Cut(last, "of what changed-1 (the live files against those that you began with) returned:"); !strings.Contains(shown, "\n-one\n+two\n") {
		t.Errorf("recall does not show what its user did")
	}
	if t.Failed() {
		t.Logf("the last request:\n%s", last)
	}
}
