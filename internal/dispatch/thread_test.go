package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
)

// sumsUp reports whether a request asks for a summary of what is left out.
func sumsUp(req contract.TurnRequest) bool {
	return strings.Contains(textOf(req), "Use exactly these sections")
}

// returnsOf is what the calls of a request returned, and what its messages say.
func returnsOf(req contract.TurnRequest) string {
	out := textOf(req)
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			if p.Return != nil {
				out += p.Return.ID + ": " + p.Return.Content + "\n"
			}
		}
	}
	return out
}

// longTask is a model that makes a task of eighty turns, and keeps what it was sent.
type longTask struct {
	t     *testing.T
	h     *house
	steer func(text string)
	mu    sync.Mutex
	// turn counts the requests that ask for no summary, compactions the others.
	turn, compactions int
	before            *contract.TurnRequest // since the last compaction
	log               []contract.Payload    // what turn 80's log has
	whole             map[string]bool       // the calls that turn 80 is sent as they were made
	last, recalled    string                // what turn 80 and the one behind it are told
}

// onlyLonger fails the test if a request is not the one before with something at its end.
func (l *longTask) onlyLonger(req contract.TurnRequest) {
	if b := l.before; b != nil {
		was, is := string(must(json.Marshal(b.Messages))), string(must(json.Marshal(req.Messages)))
		// The one before ends in the brackets of its last message, which may have got further parts.
		if was = was[:len(was)-len(`]}]`)]; len(is) <= len(was) || !strings.HasPrefix(is, was) {
			l.t.Errorf("the request of turn %d is not the one before with something at its end:\n%.3000s\nbefore:\n%.3000s", l.turn, is, was)
		}
		b.Messages, req.Messages = nil, nil
		if !reflect.DeepEqual(*b, req) {
			l.t.Errorf("the request of turn %d differs from the one before besides in its messages:\n%+v\nbefore:\n%+v", l.turn, req, *b)
		}
	}
}

func (l *longTask) answer(_ int, req contract.TurnRequest) []contract.Part {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sumsUp(req) {
		l.compactions++
		l.before = nil
		return parts(contract.Part{Text: "I did some things."})
	}
	l.turn++
	l.onlyLonger(req)
	l.before = &req
	id := fmt.Sprintf("c%d", l.turn)
	switch turn := l.turn; {
	case turn == 3:
		return parts(use(id, "bash", m{"command": "seq -f 'line %g of the third' 1 5000"}))
	case turn == 10:
		l.steer("keep the logo")
		return parts(use(id, "bash", m{"command": "echo steered"}))
	case turn < 80 && turn%15 == 5:
		return parts(use(id, "bash", m{"command": fmt.Sprintf("printf 'undefined: %%s' Frobnicate%d >&2; exit 3", turn)}))
	case turn < 80 && turn%15 == 6:
		return parts(use(id, "write", m{"path": fmt.Sprintf("workspace/made-in-turn-%d.txt", turn), "content": strings.Repeat("x", 3000)}))
	case turn < 80:
		return parts(use(id, "bash", m{"command": fmt.Sprintf("seq 1 200 && echo round %d", turn)}))
	case turn == 80:
		if l.compactions < 2 {
			l.t.Errorf("before turn 80 the conversation was compacted %d times", l.compactions)
		}
		l.last, l.log, l.whole = returnsOf(req), append(l.h.events("tool.called"), l.h.events("tool.returned")...), map[string]bool{}
		for _, m := range req.Messages {
			for _, p := range m.Parts {
				if p.Call != nil {
					l.whole[p.Call.ID] = true
				}
			}
		}
		handle := regexp.MustCompile(`\[(c\d+)\] [^\n]*of the third`).FindStringSubmatch(l.last)
		if handle == nil {
			l.t.Errorf("turn 80 is told no handle of turn 3's call:\n%s", l.last)
			break
		}
		return parts(use(id, "recall", m{"call": handle[1], "from": 2495, "lines": 12}))
	case turn == 81:
		l.recalled = returnsOf(req)
		return parts(use(id, "recall", m{"call": "never"}))
	}
	return parts(use("fin", "finish", m{"status": "ok", "summary": "Did it."}))
}

// known are the paths, commands and errors that the log of turn 80 has, as they were written, each with the id of its call; of
// the newest calls, which no compaction has left out, only the errors.
func (l *longTask) known() (out []string) {
	commands, paths, failures := 0, 0, 0
	for _, p := range l.log {
		switch p := p.(type) {
		case *contract.ToolCalled:
			var args struct{ Command, Path string }
			must(0, json.Unmarshal(p.Args, &args))
			switch {
			case l.whole[p.Call]:
			case args.Path != "":
				paths++
				out = append(out, args.Path+" ["+p.Call+"]")
			default:
				commands++
				out = append(out, "["+p.Call+"] "+args.Command+" → exit code ")
			}
		case *contract.ToolReturned:
			if p.Command != nil && p.Command.ExitCode != 0 {
				failures++
				out = append(out, "undefined: "+strings.TrimSpace(p.Output[strings.LastIndex(p.Output, " ")+1:])+"\n")
			}
		}
	}
	if left := len(l.whole); commands+paths+left != 79 || left > 20 || paths != 5 || failures != 5 {
		l.t.Errorf("the log of turn 80 has %d commands, %d paths and %d failures that were left out, and %d calls that were not", commands, paths, failures, left)
	}
	return out
}

// TestFactsAreWordForWord: in its eightieth turn, after several compactions, with a summariser that writes nothing useful, a task's
// loop is still told each path, command and error that the log knows, the words of the user, and a handle by which recall brings
// back what the third turn returned. Between two compactions each request is the one before with something at its end.
func TestFactsAreWordForWord(t *testing.T) {
	h := newHouse(t)
	h.sleep()
	h.tune = func(o *dispatch.Options) { o.Turns = 150 }
	h.wake()
	h.model.window = 12_000 // about 21 kB of a conversation
	h.model.director = plan(m{"kind": "agent", "goal": "a long one", "tools": []string{"bash", "write"}})
	var run string
	l := &longTask{t: t, h: h, steer: func(text string) {
		if _, err := h.d.Steer(context.WithoutCancel(t.Context()), contract.Person("u"), run, text); err != nil {
			t.Error(err)
		}
	}}
	h.model.associate = l.answer
	l.mu.Lock()
	run = h.submit("work for long")
	l.mu.Unlock()
	rep := h.report(run)
	h.quiet()
	if rep.Status != contract.RunDone {
		t.Fatalf("%+v", rep)
	}
	for _, want := range append(l.known(), "a long one", "keep the logo") {
		if !strings.Contains(l.last, want) {
			t.Errorf("turn 80 is not told %q:\n%s", want, l.last)
		}
	}
	if !strings.Contains(l.recalled, "line 2500 of the third\nline 2501 of the third\n") {
		t.Errorf("recall showed %s", l.recalled[max(0, len(l.recalled)-2000):])
	}
}

// TestRecallShowsWhatWasCutOut: what a command's output was cut by is there, a piece at a time, of up to 256 KiB its beginning
// and its end; a line behind the last, and another call's id, is an answer.
func TestRecallShowsWhatWasCutOut(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	var saw []string
	all := regexp.MustCompile(`It has (\d+) lines\.`)
	lines := 1
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		saw = append(saw, returnsOf(req))
		if found := all.FindStringSubmatch(returnsOf(req)); n == 2 && found != nil {
			lines = must(strconv.Atoi(found[1]))
		}
		return steps(use("a", "bash", m{"command": "seq -f 'line %g of it' 1 20000"}), use("b", "recall", m{"call": "a", "from": 100_000_000}),

			// The first line is the exit code.
			use("c", "recall", m{"call": "a", "from": 3002, "lines": 2}), use("d", "recall", m{"call": "a", "from": max(lines-1, 1)}), use("e", "recall", m{"call": "nothing"}))(n, req)
	}
	if rep := h.report(h.submit("look")); rep.Status != contract.RunDone {
		t.Fatalf("%+v", rep)
	}
	h.quiet()
	if len(saw) != 6 || strings.Contains(saw[1], "line 3001 of it") {
		t.Fatalf("%d turns, the output was not cut", len(saw))
	}
	// A line has 14 to 17 bytes.
	if lines < 200<<10/17 || lines > 260<<10/14 {
		t.Errorf("%d lines are kept of it", lines)
	}
	_, recalled, _ := strings.Cut(saw[5], "\nb: ")
	for _, want := range []string{"of what a (bash) returned:", "\nline 3001 of it\nline 3002 of it\n(go on with from: 3004)", "\nline 20000 of it\n", "There was no call nothing."} {
		if !strings.Contains(recalled, want) {
			t.Errorf("%q is missing in %.3000s", want, recalled)
		}
	}
}

// TestSteeringReachesWhicheverLoopWorks: what the user says while a task works is told to its loop before its next call, once,
// and a task that begins later is told of it as well.
func TestSteeringReachesWhicheverLoopWorks(t *testing.T) {
	h := newHouse(t)
	one := m{"kind": "agent", "goal": "first", "tools": []string{"bash"}}
	two := m{"kind": "agent", "goal": "later goal", "tools": []string{"bash"}}
	h.model.director = func(n int, _ contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(use("d0", "delegate", m{"tasks": []m{one}}))
		case 1:
			return parts(use("d1", "delegate", m{"tasks": []m{two}}))
		}
		return parts(use("d2", "report", m{"status": "done", "summary": "It is done."}))
	}
	var run string
	var mu sync.Mutex
	heard := map[string]int{}
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		mu.Lock()
		defer mu.Unlock()
		text := textOf(req)
		goal := "first"
		if strings.Contains(text, "later goal") {
			goal = "second"
		}
		if goal == "first" && n == 0 {
			if _, err := h.d.Steer(context.WithoutCancel(t.Context()), contract.Person("u"), run, "mind the gap"); err != nil {
				t.Error(err)
			}
			return parts(use("a", "bash", m{"command": "true"}))
		}
		if n <= 1 {
			heard[goal] = max(heard[goal], strings.Count(text, "mind the gap"))
			return parts(use("b", "bash", m{"command": "true"}))
		}
		heard[goal] = max(heard[goal], strings.Count(text, "mind the gap"))
		return parts(use("fin", "finish", m{"status": "ok", "summary": "Did it."}))
	}
	mu.Lock()
	run = h.submit("go")
	mu.Unlock()
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Fatalf("%+v", rep)
	}
	h.quiet()
	if heard["first"] != 1 || heard["second"] != 1 {
		t.Errorf("heard %v times", heard)
	}
}

// TestAWaitForAModelIsTold: while a loop's call waits for its model, the run is waiting and its clock stands; another model
// may be chosen, which the call learns of.
func TestAWaitForAModelIsTold(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(m{"kind": "agent", "goal": "g", "tools": []string{"bash"}})
	h.model.associate = steps()
	var once sync.Once
	waits := make(chan ports.ModelScope)
	goOn := make(chan struct{})
	h.model.waits = func(s ports.ModelScope) {
		if s.Role != contract.KindAssociate {
			return
		}
		once.Do(func() {
			w := contract.ModelWaiting{Role: "associate", Provider: "script", Model: "one", Code: "rate_limited", Message: "no more for now", Since: now(), Next: now(), Until: now(), Try: 1}
			s.Waiter.Waiting(t.Context(), w)
			waits <- s
			<-goOn
			s.Waiter.Resumed(t.Context(), contract.ModelResumed{Role: "associate", Provider: "script", Model: "one", Outcome: contract.WaitAnswered, WaitedMS: 5})
		})
	}
	run := h.submit("go")
	s := <-waits
	h.told(run, "model.waiting", nil)
	h.told(run, "run.moved", func(p contract.Payload) bool { return p.(*contract.RunMoved).Status == contract.RunWaiting })
	before, another := s.Chosen()
	if before != "" {
		t.Errorf("the model was %q before anybody chose", before)
	}
	if _, err := h.d.Switch(t.Context(), contract.Person("u"), run, "without-price"); !fault.Is(err, fault.Missing) {
		t.Errorf("a model that can't be used is taken: %v", err)
	}
	select {
	case <-another:
		t.Error("the call is ended for a model that can't be used")
	default:
	}
	if n := len(h.events("model.switched")); n != 0 {
		t.Errorf("%d times switched", n)
	}
	if _, err := h.d.Switch(t.Context(), contract.Person("u"), run, "other"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-another:
	case <-time.After(time.Minute):
		t.Fatal("the call was not told of the other model")
	}
	if got, _ := s.Chosen(); got != "script/one" {
		t.Errorf("chosen: %q", got)
	}
	close(goOn)
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Fatalf("%+v", rep)
	}
	h.quiet()
	if n := len(h.events("model.resumed")); n != 1 {
		t.Errorf("%d times resumed", n)
	}
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// TestNobodyIsAskedTheSameTwice: a question with the words of an earlier one has its answer, whatever call asks it.
func TestNobodyIsAskedTheSameTwice(t *testing.T) {
	h := newHouse(t)
	ask := m{"text": "Which colour?", "choices": []string{"red", "blue"}, "default": "red"}
	var saw string
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(use("q1", "ask_user", ask))
		case 1:
			return parts(use("q2", "ask_user", ask))
		}
		saw = returnsOf(req)
		return parts(use("r", "report", m{"status": "done", "summary": "ok"}))
	}
	run := h.submit("colour")
	q := h.told(run, "question.asked", nil).(*contract.QuestionAsked)
	if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q.Question.ID, "blue"); err != nil {
		t.Fatal(err)
	}
	h.report(run)
	h.quiet()
	if n := len(h.events("question.asked")); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if strings.Count(saw, "The user answers: blue") != 2 {
		t.Errorf("the Director read %s", saw)
	}
}

// TestTheSameIsNotDoneTwice: what was delegated in the same words, by another call or twice in one, is done once; what
// the user has said something to since, and what failed, is done again.
func TestTheSameIsNotDoneTwice(t *testing.T) {
	for name, c := range map[string]struct {
		status string // of the task
		steer  bool
		tasks  int // that were requested
	}{
		"it went well":                  {status: "ok", tasks: 1},
		"the user said something since": {status: "ok", steer: true, tasks: 2},
		"it failed":                     {status: "failed", tasks: 2},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			task := m{"kind": "agent", "goal": "paint it", "tools": []string{"bash"}}
			said := make(chan struct{})
			var saw string
			h.model.associate = func(int, contract.TurnRequest) []contract.Part {
				return parts(use("f", "finish", m{"status": c.status, "summary": "painted"}))
			}
			h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
				switch n {
				case 0:
					return parts(use("d1", "delegate", m{"tasks": []m{task, task}}))
				case 1:
					if c.steer {
						<-said
					}
					return parts(use("d2", "delegate", m{"tasks": []m{task}}))
				}
				saw = returnsOf(req)
				return parts(use("r", "report", m{"status": "done", "summary": "ok"}))
			}
			run := h.submit("paint")
			h.told(run, "task.finished", nil)
			if c.steer {
				if _, err := h.d.Steer(t.Context(), contract.Person("u"), run, "and again"); err != nil {
					t.Fatal(err)
				}
				close(said)
			}
			h.report(run)
			h.quiet()
			if n := len(h.events("task.requested")); n != c.tasks {
				t.Errorf("%d tasks were requested, want %d", n, c.tasks)
			}
			if want := 2 - c.tasks + 1; strings.Count(saw, "you delegated it before") != want {
				t.Errorf("the Director was to be told %d times: %s", want, saw)
			}
		})
	}
}

// TestFixedStepsReturnWhatTheyWrote: the Director reads what the commands of a task of fixed steps wrote.
func TestFixedStepsReturnWhatTheyWrote(t *testing.T) {
	h := newHouse(t)
	var saw string
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		saw = returnsOf(req)
		return plan(m{"kind": "exec", "goal": "look", "steps": []m{{"run": m{"argv": []string{"sh", "-c", "echo forty-two; exit 0"}}}}})(n, req)
	}
	h.report(h.submit("look"))
	h.quiet()
	if !strings.Contains(saw, "echo forty-two; exit 0 → exit code 0") || !strings.Contains(saw, "\n    forty-two") {
		t.Errorf("the Director read %s", saw)
	}
}

// TestADirectorRecallsWhatItLookedAt: after its conversation was compacted a Director is told by the log which calls it made to
// look at files, and recall shows again what one of them returned; of calls that it did not make there is nothing to show.
func TestADirectorRecallsWhatItLookedAt(t *testing.T) {
	h := newHouse(t)
	h.model.window = 12_000
	var lines strings.Builder
	for i := range 120 {
		fmt.Fprintf(&lines, "line %d of the file that is looked at\n", i+1)
	}
	if err := os.WriteFile(filepath.Join(h.ws.live(), "workspace", "long.txt"), []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	compactions, turn := 0, 0
	var told, recalled, none string
	h.model.director = func(_ int, req contract.TurnRequest) []contract.Part {
		if sumsUp(req) {
			compactions++
			return parts(contract.Part{Text: "I looked at some files."})
		}
		turn++
		switch {
		case turn < 4:
			return parts(use(fmt.Sprintf("look%d", turn), "read", m{"path": "workspace/long.txt", "offset": turn}))
		case turn == 4:
			told = textOf(req)
			return parts(use("again", "recall", m{"call": "look1", "from": 50, "lines": 5}))
		case turn == 5:
			recalled = returnsOf(req)
			return parts(use("none", "recall", m{"call": "look99"}))
		}
		none = returnsOf(req)
		return parts(use("end", "report", m{"status": "done", "summary": "Seen."}))
	}
	if rep := h.report(h.submit("look around")); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	if compactions == 0 || !strings.Contains(told, "[look1] read") {
		t.Errorf("compacted %d times, it is told:\n%s", compactions, told)
	}
	if !strings.Contains(recalled, "returned:") || !strings.Contains(recalled, "line 5") || strings.Contains(recalled, "There was no call") {
		t.Errorf("recall showed %q", recalled)
	}
	if !strings.Contains(none, "There was no call look99.") {
		t.Errorf("of another call it says %q", none)
	}
}
