package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/test/choirtest"
)

// long is a call whose turn is too long to be stored in the log itself.
var long = use("long", "bash", m{"command": "true # " + strings.Repeat("long ", 20<<10)})

// lose makes the data of an event unreadable: gone or changed.
func (h *house) lose(e contract.Event, changed bool) {
	h.t.Helper()
	file := filepath.Join(h.dir, "blobs", string(h.cid), e.DataRef.Hex()[:2], e.DataRef.Hex())
	err := os.Remove(file)
	if changed {
		err = errors.Join(err, os.WriteFile(file, []byte(`{"other":true}`), 0o600))
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// inBlobs returns the events of a type whose data are in blobs.
func (h *house) inBlobs(eventType string) []contract.Event {
	h.t.Helper()
	var out []contract.Event
	for _, e := range must(h.log.Read(h.t.Context(), 0, 1000)) {
		if e.Type == eventType && e.DataRef != "" {
			out = append(out, e)
		}
	}
	return out
}

// A run that is under way and has lost an event's data is ended, and its report says what
// is lost. What its task showed live is taken back, and nothing else of the computer is
// affected.
func TestARunOfWhichAnEventIsLostIsEnded(t *testing.T) {
	for name, changed := range map[string]bool{"gone": false, "changed": true} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.model.director = plan(agentTask)
			h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
				switch {
				case n == 0:
					return parts(blue)
				case n == 1 && len(h.inBlobs("turn.recorded")) == 0:
					return parts(long)
				case n == 2 && len(h.events("run.reported")) == 0:
					return parts(use("s", "bash", m{"command": "sleep 1000"}))
				}
				return parts(use("f", "finish", m{"status": "ok", "summary": "Did it."}))
			}
			run := h.submit("go")
			h.told(run, "tool.called", func(p contract.Payload) bool { return p.(*contract.ToolCalled).Call == "s" })
			lost := h.inBlobs("turn.recorded")
			if live := string(readFile(h.ws.live(), "choiros/x.css")); len(lost) == 0 || live != "blue\n" {
				t.Fatalf("%d turns are in blobs, live is %q", len(lost), live)
			}
			h.lose(lost[0], changed)
			h.restart()
			rep := h.report(run)
			h.quiet()
			res := h.results()
			if rep.Status != contract.RunFailed || rep.Verified == contract.VerificationPass || !strings.Contains(rep.Summary, "(turn.recorded)") || !strings.Contains(rep.Error, "can't be read any more") {
				t.Errorf("the report is %+v", rep)
			}
			if len(res) != 1 || res[0].Status != contract.ResultFailed || !strings.Contains(res[0].Summary, "can't be read any more") {
				t.Errorf("the results are %+v", res)
			}
			if live := string(readFile(h.ws.live(), "choiros/x.css")); live != "red\n" {
				t.Errorf("live is %q", live)
			}
			if rep := h.report(h.submit("another")); rep.Status != contract.RunDone {
				t.Errorf("the next run: %+v", rep)
			}
			h.quiet()
			h.restart()
			if n := len(h.events("run.reported")); n != 2 {
				t.Errorf("%d reports", n)
			}
		})
	}
}

// A lost event of a task that already has its result does no harm.
func TestARunGoesOnWithoutWhatItDoesNotNeed(t *testing.T) {
	h := newHouse(t)
	h.model.director = func(n int, _ contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(use("d0", "delegate", m{"tasks": []m{agentTask}}))
		case 1:
			return parts(use("q", "ask_user", m{"text": "Which colour?", "choices": []string{"red", "blue"}, "default": "red"}))
		}
		return parts(use("r", "report", m{"status": "done", "summary": "It is done."}))
	}
	h.model.associate = steps(edit("c1"), long)
	run := h.submit("go")
	q := h.told(run, "question.asked", nil).(*contract.QuestionAsked).Question
	h.lose(h.inBlobs("turn.recorded")[0], false)
	h.restart()
	if _, err := h.d.Answer(t.Context(), contract.Person("u"), run, q.ID, "blue"); err != nil {
		t.Fatal(err)
	}
	if rep := h.report(run); rep.Status != contract.RunDone || rep.Verified != contract.VerificationPass {
		t.Errorf("%+v", rep)
	}
	h.quiet()
}

// forgetful is a log that can't read the data of one type of events up to a sequence.
type forgetful struct {
	ports.Log
	eventType string
	upTo      uint64 // 0: all
	err       error
	asked     atomic.Int32
}

func (l *forgetful) Payload(ctx context.Context, e contract.Event) (contract.Payload, error) {
	if e.Type == l.eventType && (l.upTo == 0 || e.Sequence <= l.upTo) {
		l.asked.Add(1)
		return nil, l.err
	}
	return l.Log.Payload(ctx, e)
}

// Each kind of event that can't be read ends its run, live and at a start, and
// no attempt or approval of it stays open. What may pass is tried some times.
func TestWhateverIsLostTheRunEnds(t *testing.T) {
	eio := &os.PathError{Op: "read", Path: "blob", Err: syscall.EIO}
	gone := fault.New("blob.Open", fault.NotFound, "", os.ErrNotExist)
	for _, c := range []struct {
		eventType string
		err       error
		asked     int32 // at least
		all       bool  // also what is stored later
	}{
		{"prompt.submitted", gone, 1, false}, {"run.started", gone, 1, false}, {"task.requested", gone, 1, false}, {"attempt.moved", eio, 1, false}, {"attempt.moved", eio, 1, true},
		{"task.started", gone, 1, false}, {"turn.recorded", errors.New("too many open files"), 6, false}, {"tool.called", gone, 1, false},
	} {
		t.Run(fmt.Sprint(c.eventType, " ", c.all), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.model.director = plan(agentTask)
			h.model.associate = func(n int, _ contract.TurnRequest) []contract.Part {
				if n == 0 {
					return parts(blue)
				}
				return parts(use("s", "bash", m{"command": "sleep 1000"}))
			}
			run := h.submit("go")
			h.told(run, "tool.called", func(p contract.Payload) bool { return p.(*contract.ToolCalled).Call == "s" })
			l := &forgetful{eventType: c.eventType, err: c.err}
			if !c.all {
				l.upTo = h.log.Last()
			}
			h.sleep()
			h.wrap = func(in ports.Log) ports.Log { l.Log = in; return l }
			h.wake()
			if err := h.d.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			rep := h.report(run)
			h.d.Close() // what is under way would stay
			if rep.Status != contract.RunFailed || !strings.Contains(rep.Summary, "("+c.eventType+")") {
				t.Errorf("the report is %+v", rep)
			}
			if l.asked.Load() < c.asked {
				t.Errorf("it was asked for %d times; want %d", l.asked.Load(), c.asked)
			}
			// Where the attempt is known, it has its end too.
			if want := c.eventType != "task.requested" && !c.all; len(h.results()) > 1 || want != (len(h.results()) == 1) {
				t.Errorf("the results are %+v\n%s", h.results(), h.story())
			}
			if n := h.log.Last(); n > 100 {
				t.Errorf("the log has %d events", n)
			}
		})
	}
}

// The same happens while the run is under way: it ends with a report instead of hanging.
func TestARunUnderWayOfWhichAnEventIsLostEnds(t *testing.T) {
	h := newHouse(t)
	l := &forgetful{eventType: "tool.returned", err: fault.New("blob.Open", fault.NotFound, "", os.ErrNotExist)}
	h.sleep()
	h.wrap = func(in ports.Log) ports.Log { l.Log = in; return l }
	h.wake()
	h.model.director = plan(agentTask)
	h.model.associate = steps(blue, long)
	start := time.Now()
	rep := h.report(h.submit("go"))
	h.quiet()
	if rep.Status != contract.RunFailed || !strings.Contains(rep.Summary, "(tool.returned)") {
		t.Errorf("after %s the report is %+v", time.Since(start), rep)
	}
	if res := h.results(); len(res) != 1 || res[0].Status != contract.ResultFailed {
		t.Errorf("the results are %+v", res)
	}
	if live := string(readFile(h.ws.live(), "choiros/x.css")); live != "red\n" {
		t.Errorf("live is %q", live)
	}
}

// fullLog takes no end of a run while the disk is full.
type fullLog struct {
	ports.Log
	full    atomic.Bool
	refused atomic.Int32
}

func (l *fullLog) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	if l.full.Load() && drafts[0].Type == "run.reported" {
		l.refused.Add(1)
		return nil, fault.New("ledger.Append", fault.DiskFull, fault.FreeSpace, syscall.ENOSPC)
	}
	return l.Log.Append(ctx, drafts...)
}

// A run whose end the log does not take is reported once it does, as what it was, without a start in between: until
// then it is somebody's, so that it can be cancelled and its computer is not idle.
func TestARunsEndIsRecordedOnceTheLogTakesIt(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(edit("c1"))
	l := &fullLog{}
	l.full.Store(true)
	h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
	h.sleep()
	h.wake()
	run := h.submit("go")
	choirtest.Eventually(t, time.Minute, "its end is refused a second time", func() bool { return l.refused.Load() > 1 })
	if !h.d.Busy() {
		t.Error("nobody has the run any more")
	}
	l.full.Store(false)
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Errorf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	if n := len(h.events("run.reported")); n != 1 {
		t.Errorf("%d reports", n)
	}
}

// crowdedLog takes nothing of the events that full names while the disk is full.
type crowdedLog struct {
	ports.Log
	full    func(contract.Draft) bool
	freed   atomic.Bool
	refused atomic.Int32
}

func (l *crowdedLog) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	if !l.freed.Load() && slices.ContainsFunc(drafts, l.full) {
		l.refused.Add(1)
		return nil, fault.New("ledger.Append", fault.DiskFull, fault.FreeSpace, syscall.ENOSPC)
	}
	return l.Log.Append(ctx, drafts...)
}

// endsATask reports whether an event is one that a task without its end needs.
func endsATask(d contract.Draft) bool {
	p, moved := d.Data.(*contract.AttemptMoved)
	return d.Type == "tool.called" || d.Type == "task.finished" || moved && p.State != contract.AttemptBegun
}

// TestATaskEndsOnceTheLogTakesItsEnd shows of a task what TestARunsEndIsRecordedOnceTheLogTakesIt shows of a run: nobody
// waits for ever for a task whose end met a full disk, and no run is reported before its tasks have their results.
func TestATaskEndsOnceTheLogTakesItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		during func(h *house, run string)
		want   contract.RunStatus
	}{
		"there is room again": {func(*house, string) {}, contract.RunFailed},
		"its user cancels the run": {func(h *house, run string) {
			must(h.d.Command(h.t.Context(), contract.Person("u"), run, contract.CommandCancel))
			h.told(run, "run.commanded", nil)
		}, contract.RunCancelled},
		"the computer sleeps and wakes": {func(h *house, _ string) {
			h.wrap = nil
			h.restart()
		}, contract.RunDone},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.model.director, h.model.associate = plan(agentTask), steps(edit("c1"))
			l := &crowdedLog{full: endsATask}
			h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
			h.sleep()
			h.wake()
			run := h.submit("go")
			// The call, its attempt's end, giving it up, and that again for as long as there is no room.
			choirtest.Eventually(t, time.Minute, "its end is refused a second time", func() bool { return l.refused.Load() > 4 })
			c.during(h, run)
			if n := len(h.events("run.reported")); n > 0 && h.wrap != nil {
				t.Error("the run is reported and its task has no result")
			}
			l.freed.Store(true)
			rep := h.report(run)
			h.quiet()
			if res := h.results(); rep.Status != c.want || len(res) != 1 || len(h.events("run.reported")) != 1 {
				t.Errorf("%+v, %+v\n%s", rep, res, h.story())
			}
		})
	}
}

// TestNoRunEndsBeforeItsTasks shows that a run whose task can't be ended is not reported, also when it is cancelled and
// all that is recorded beside the task's end has room; and that the next start ends both.
func TestNoRunEndsBeforeItsTasks(t *testing.T) {
	h := newHouse(t)
	h.model.director, h.model.associate = plan(agentTask), steps(edit("c1"))
	l := &crowdedLog{full: func(d contract.Draft) bool {
		p, ok := d.Data.(*contract.AttemptMoved)
		return d.Type == "task.finished" || ok && p.State == contract.AttemptTakingBack
	}}
	h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
	h.sleep()
	h.wake()
	run := h.submit("go")
	choirtest.Eventually(t, time.Minute, "its end is refused", func() bool { return l.refused.Load() > 0 })
	must(h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandCancel))
	refused := l.refused.Load()
	choirtest.Eventually(t, time.Minute, "its end is refused after it was cancelled", func() bool { return l.refused.Load() > refused+1 })
	if n := len(h.events("run.reported")); n > 0 {
		t.Error("the run is reported and its task has no result")
	}
	h.wrap = nil
	h.restart()
	h.report(run)
	h.quiet()
	if res := h.results(); len(res) != 1 {
		t.Errorf("the results are %+v\n%s", res, h.story())
	}
}

// hostFile is where a host keeps something, which no loop has any business with.
const hostFile = "/home/host/data/computers/x/blobs/.tmp/put-1"

// fullBlobs has no room for anything.
type fullBlobs struct{ ports.Blobs }

func (fullBlobs) Put(context.Context, contract.CID, io.Reader) (contract.BlobRef, int64, error) {
	return "", 0, fault.Wrap("blob.Put", &fs.PathError{Op: "write", Path: hostFile, Err: syscall.ENOSPC})
}

// TestNoPathOfTheHostIsTold shows that what a loop, its Director and the task's result are told of a disk that is full is
// what people get: what to free, and no path of the host.
func TestNoPathOfTheHostIsTold(t *testing.T) {
	h := newHouse(t)
	h.tune = func(o *dispatch.Options) { o.Blobs = fullBlobs{o.Blobs} }
	h.sleep()
	h.wake()
	var mu sync.Mutex
	var told strings.Builder
	hear := func(say func(int, contract.TurnRequest) []contract.Part) func(int, contract.TurnRequest) []contract.Part {
		return func(n int, req contract.TurnRequest) []contract.Part {
			mu.Lock()
			told.Write(must(json.Marshal(req)))
			mu.Unlock()
			return say(n, req)
		}
	}
	h.model.director = hear(plan(agentTask))
	h.model.associate = hear(steps(use("b", "bash", m{"command": "seq 1 20000"})))
	rep := h.report(h.submit("go"))
	h.quiet()
	mu.Lock()
	defer mu.Unlock()
	res := h.results()
	if rep.Status != contract.RunFailed || len(res) != 1 || !strings.Contains(res[0].Summary, "no space left on device. "+fault.FreeSpace) {
		t.Errorf("the results are %+v", res)
	}
	if !strings.Contains(told.String(), "no space left on device. "+fault.FreeSpace) {
		t.Error("nobody was told what to free")
	}
	for _, e := range must(h.log.Read(t.Context(), 0, 1000)) {
		told.Write(e.Data)
	}
	for _, never := range []string{hostFile, "blob.Put"} {
		if at := strings.Index(told.String(), never); at >= 0 {
			t.Errorf("it is told %q", told.String()[max(0, at-200):at+len(never)])
		}
	}
}

// TestWhatIsDecidedOutlivesAFullDisk shows that work which is published, and what a task that only reads has found, is not
// called failed because the log had no room for the result.
func TestWhatIsDecidedOutlivesAFullDisk(t *testing.T) {
	for name, task := range map[string]m{"published": agentTask, "found": {"kind": "inspect", "goal": "look", "tools": []string{"read"}}} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.model.director, h.model.associate = plan(task), steps(edit("c1"))
			if name == "found" {
				h.model.associate = steps()
			}
			l := &crowdedLog{full: func(d contract.Draft) bool {
				p, ok := d.Data.(*contract.AttemptMoved)
				return d.Type == "task.finished" || ok && p.State == contract.AttemptTakingBack
			}}
			h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
			h.sleep()
			h.wake()
			h.ws.race = sync.OnceFunc(func() {
				asked := h.events("task.requested")[0].(*contract.TaskRequested).Task
				must(h.log.Append(t.Context(), contract.Draft{Actor: contract.System(), Type: "publish.started", Run: asked.Run, Task: asked.ID,
					Data: contract.PublishStarted{Publish: contract.NewID(), Base: strings.Repeat("1", 40), Commit: strings.Repeat("2", 40), Paths: 1}}))
			})
			run := h.submit("go")
			choirtest.Eventually(t, time.Minute, "its end is refused", func() bool { return l.refused.Load() > 3 })
			l.freed.Store(true)
			rep := h.report(run)
			h.quiet()
			if res := h.results(); rep.Status != contract.RunDone || len(res) != 1 || res[0].Status != contract.ResultOK || name == "published" && h.liveNow() != "echo two\nred\n" {
				t.Errorf("%+v, %+v, live %q\n%s", rep, res, h.liveNow(), h.story())
			}
		})
	}
}
