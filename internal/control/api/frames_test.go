package api_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/api"
	"choir.dev/choiros/internal/fault"
)

var kinds = []api.FrameKind{api.FrameStarted, api.FrameStdout, api.FrameStderr, api.FrameAlive, api.FrameExited, api.FrameFailed}

func TestFramesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		unit := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "unit")
		payload := bytes.Repeat(unit, rapid.IntRange(0, 4000).Draw(t, "times"))
		var wire bytes.Buffer
		if err := api.WriteFrame(&wire, kind, payload); err != nil {
			t.Fatal(err)
		}
		var got, buf []byte
		for {
			k, part, err := api.ReadFrame(&wire, buf)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || k != kind || len(part) > api.MaxFrame {
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
			_, payload, err := api.ReadFrame(in, nil)
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
		name   string
		err    error
		want   api.Problem
		status int
	}{
		{"coded", fault.Wrap("outer", fault.New("inner", fault.DiskFull, "Free some.", errors.New("no space"))),
			api.Problem{Code: "disk_full", Detail: "no space", Hint: "Free some."}, 507},
		{"a field", fault.Wrap("op", &contract.FieldError{Field: "steps[2].run", Reason: "is empty"}),
			api.Problem{Code: "invalid", Detail: "steps[2].run: is empty", Field: "steps[2].run"}, 422},
		{"ours", errors.New("/secret/path"), api.Problem{Code: "internal", Detail: "Something went wrong inside; the server's log says what."}, 500},
	} {
		got := api.Describe(c.err)
		if got.Code != c.want.Code || got.Detail != c.want.Detail || got.Hint != c.want.Hint || got.Field != c.want.Field || got.Status != c.status || got.Title == "" {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestActionsThatNobodyMayTake(t *testing.T) {
	id, run := contract.NewID(), contract.DeriveID(contract.NewID(), "run")
	good := api.Action{ID: id, Type: "window.closed", Data: &contract.WindowClosed{Window: "w"}}
	if err := good.Validate(); err != nil || good.About().Subject != "window/w" {
		t.Fatal(err)
	}
	for field, a := range map[string]api.Action{
		"type":    {ID: id, Type: "run.reported", Data: &contract.RunReported{}},
		"id":      {ID: run, Type: "window.closed", Data: &contract.WindowClosed{Window: "w"}},
		"subject": {ID: id, Type: "window.closed", Subject: "task/1", Data: &contract.WindowClosed{Window: "w"}},
		"run":     {ID: id, Type: "run.steered", Data: &contract.RunSteered{Text: "x"}},
		"data":    {ID: id, Type: "window.closed"},
		"window":  {ID: id, Type: "window.closed", Data: &contract.WindowClosed{}},
	} {
		if fe := contract.AsFieldError(a.Validate()); fe == nil || fe.Field != field {
			t.Errorf("%s: %v", field, a.Validate())
		}
	}
}
