package dispatch_test

import (
	"bytes"
	"image"
	"image/png"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/dispatch/ports"
)

func noise(t *testing.T, side int) []byte {
	i := image.NewGray(image.Rect(0, 0, side, side))
	for k := range i.Pix {
		i.Pix[k] = byte(rand.Uint32())
	}
	var b bytes.Buffer
	if err := png.Encode(&b, i); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestAPictureThatCanNotBeKeptIsTold shows that where the computer's blobs are full, reading a picture is refused in words.
func TestAPictureThatCanNotBeKeptIsTold(t *testing.T) {
	h := newHouse(t)
	h.sleep()
	h.blobs = must(disk.Open(filepath.Join(h.dir, "blobs2"), blob.Quota{PerComputer: 100_000}))
	h.wake()
	put(h.ws.live(), "workspace/shot.png", noise(t, 500))
	h.model.director = plan(m{"kind": "inspect", "goal": "look", "tools": []string{"read"}})
	var ret *contract.ToolReturn
	work := steps(use("shot", "read", m{"path": "workspace/shot.png"}))
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		for _, msg := range req.Messages {
			for _, p := range msg.Parts {
				if p.Return != nil {
					ret = p.Return
				}
			}
		}
		return work(n, req)
	}
	rep := h.report(h.submit("look"))
	h.quiet()
	if ret == nil || !strings.Contains(ret.Content, "can't be kept") || len(ret.Images) > 0 {
		t.Errorf("%+v %+v", rep, ret)
	}
	if rs := h.results(); len(rs) != 1 || rs[0].Status != contract.ResultOK {
		t.Errorf("%+v", rs)
	}
	if n := len(h.events("tool.called")) - len(h.events("tool.returned")); n != 0 {
		t.Errorf("%d calls have no return in the log", n)
	}
}

// TestARestartKeepsPictures shows that a picture that was looked at is still shown after a restart.
func TestARestartKeepsPictures(t *testing.T) {
	for _, dies := range []string{"tool.returned", "turn.recorded"} {
		h := newHouse(t)
		put(h.ws.live(), "workspace/shot.png", noise(t, 20))
		h.model.director = plan(m{"kind": "inspect", "goal": "look", "tools": []string{"read"}})
		saw := 0
		h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
			for _, p := range req.Messages[len(req.Messages)-1].Parts {
				if p.Return != nil {
					saw = len(p.Return.Images)
				}
			}
			if n == 0 {
				return parts(use("shot", "read", m{"path": "workspace/shot.png"}))
			}
			return parts(use("f", "finish", m{"status": "ok", "summary": "saw"}))
		}
		var l *dyingLog
		h.sleep()
		h.wrap = func(real ports.Log) ports.Log {
			l = &dyingLog{Log: real, dead: make(chan struct{}), stop: func(d contract.Draft) bool {
				if p, ok := d.Data.(*contract.TurnRecorded); ok && dies == "turn.recorded" {
					return p.Returns != nil && d.Task != ""
				}
				_, ok := d.Data.(*contract.ToolReturned)
				return ok && dies == "tool.returned"
			}}
			return l
		}
		h.wake()
		run := h.submit("go")
		<-l.dead
		h.restart()
		rep := h.report(run)
		h.quiet()
		if rep.Status != contract.RunDone || saw != 1 {
			t.Errorf("%s: %+v: it saw %d", dies, rep, saw)
		}
	}
}

// TestAPictureThatCanNotBeKeptDoesNotEndATaskThatGoesOn shows that such a call has its return in the log, so that a restart does not
// make it again and end the task.
func TestAPictureThatCanNotBeKeptDoesNotEndATaskThatGoesOn(t *testing.T) {
	h := newHouse(t)
	put(h.ws.live(), "workspace/shot.png", noise(t, 500))
	h.model.director = plan(agentTask)
	h.model.associate = steps(edit("c1"), use("shot", "read", m{"path": "workspace/shot.png"}), use("text", "read", m{"path": "workspace/a.sh"}))
	var l *dyingLog
	h.sleep()
	h.blobs = must(disk.Open(filepath.Join(h.dir, "blobs2"), blob.Quota{PerComputer: 100_000}))
	h.wrap = func(real ports.Log) ports.Log {
		l = &dyingLog{Log: real, dead: make(chan struct{}), stop: func(d contract.Draft) bool {
			p, ok := d.Data.(*contract.ToolCalled)
			return ok && p.Call == "text"
		}}
		return l
	}
	h.wake()
	run := h.submit("go")
	<-l.dead
	h.restart()
	h.report(run)
	h.quiet()
	if rs := h.results(); len(rs) != 1 || rs[0].Status != contract.ResultOK {
		t.Errorf("%+v", rs)
	}
}
