package view_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

var kinds = []view.FrameKind{view.FrameStarted, view.FrameStdout, view.FrameStderr, view.FrameAlive, view.FrameExited, view.FrameFailed}

func TestFramesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		unit := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "unit")
		payload := bytes.Repeat(unit, rapid.IntRange(0, 4000).Draw(t, "times"))
		var wire bytes.Buffer
		if err := view.WriteFrame(&wire, kind, payload); err != nil {
			t.Fatal(err)
		}
		var got, buf []byte
		for {
			k, part, err := view.ReadFrame(&wire, buf)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || k != kind || len(part) > view.MaxFrame {
				t.Fatalf("%c, %d bytes, %v", k, len(part), err)
			}
			got, buf = append(got, part...), part[:0]
		}
		if !bytes.Equal(got, payload) {
			t.Fatalf("%d bytes became %d", len(payload), len(got))
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("o\x00\x00\x00\x02hi"))
	f.Add([]byte("x\xff\xff\xff\xff"))
	f.Add([]byte("z\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		in := bytes.NewReader(wire)
		for {
			before := in.Len()
			_, payload, err := view.ReadFrame(in, nil)
			if err != nil {
				return
			}
			if read := before - in.Len(); read != 5+len(payload) {
				t.Fatalf("%d bytes read for a payload of %d", read, len(payload))
			}
		}
	})
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want view.Refusal
	}{
		{"coded", fault.Wrap("outer", fault.New("inner", fault.DiskFull, "Free some.", errors.New("no space"))),
			view.Refusal{Code: "disk_full", Detail: "no space", Hint: "Free some."}},
		{"a field", fault.Wrap("op", &contract.FieldError{Field: "steps[2].run", Reason: "is empty"}),
			view.Refusal{Code: "invalid", Detail: "steps[2].run: is empty", Field: "steps[2].run"}},
		{"ours", errors.New("/secret/path"), view.Refusal{Code: "internal", Detail: "Something went wrong inside; the server's log says what."}},
	} {
		got := view.Describe(c.err)
		if got != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestActionsThatNobodyMayTake(t *testing.T) {
	id, run := contract.NewID(), contract.DeriveID(contract.NewID(), "run")
	good := view.Action{ID: id, Type: "window.closed", Data: &contract.WindowClosed{Window: "w"}}
	if err := good.Validate(); err != nil || good.About().Subject != "window/w" {
		t.Fatal(err)
	}
	for field, a := range map[string]view.Action{
		"type":    {ID: id, Type: "run.reported", Data: &contract.RunReported{}},
		"id":      {ID: run, Type: "window.closed", Data: &contract.WindowClosed{Window: "w"}},
		"subject": {ID: id, Type: "window.closed", Subject: "task/1", Data: &contract.WindowClosed{Window: "w"}},
		"run":     {ID: id, Type: "run.steered", Data: &contract.RunSteered{Text: "x"}},
		"data":    {ID: id, Type: "window.closed"},
		"window":  {ID: id, Type: "window.closed", Data: &contract.WindowClosed{}},
		"text":    {ID: id, Type: "prompt.submitted", Data: &contract.PromptSubmitted{Text: " \n\t"}},
	} {
		if fe := contract.AsFieldError(a.Validate()); fe == nil || fe.Field != field {
			t.Errorf("%s: %v", field, a.Validate())
		}
	}
	blank := view.Action{ID: id, Type: "run.steered", Run: run, Data: &contract.RunSteered{Text: "  "}}
	if fe := contract.AsFieldError(blank.Validate()); fe == nil || fe.Field != "text" {
		t.Errorf("nothing said to a run: %v", blank.Validate())
	}
}
