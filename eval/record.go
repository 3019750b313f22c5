package eval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/eval/cassette"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/redact"
	"choir.dev/choiros/internal/view"
)

// record writes a cassette of what the model answered in a run. It is made of the run's log, in
// which no key is: the gateway has redacted it. What else looks like a secret is redacted here.
func (x *try) record(ctx context.Context, run view.Run) error {
	c := &cassette.Cassette{Head: cassette.Head{Origin: cassette.Recorded, Model: x.out.Model, About: x.task.About, Outcome: string(x.out.Outcome)}}
	tasks := map[string]int{}
	for i, t := range run.Tasks {
		tasks[t.ID] = i + 1
	}
	seen := map[string]bool{}
	for e, err := range x.computer.Events(ctx, client.EventsOptions{Run: run.ID, Types: []string{"turn.recorded"}}) {
		if err != nil {
			return err
		}
		if len(e.Data) == 0 {
			continue // with what its calls returned it is too large for the log; it came before without them
		}
		payload, err := contract.DecodeData(e.Type, e.Data)
		if err != nil {
			return err
		}
		v, ok := payload.(*contract.TurnRecorded)
		if !ok {
			return fmt.Errorf("%s holds a %T", e.Type, payload)
		}
		key := fmt.Sprint(e.Task, " ", v.Attempt, " ", v.Index)
		if seen[key] {
			continue
		}
		seen[key] = true
		s, err := step(v.Message)
		if err != nil {
			return err
		}
		s.Role = cassette.Director
		if e.Task != "" {
			s.Role, s.Task = cassette.Associate, max(tasks[e.Task], 1)
		}
		c.Steps = append(c.Steps, s)
	}
	var text bytes.Buffer
	if err := c.Write(&text); err != nil {
		return err
	}
	if _, err := cassette.Read(bytes.NewReader(text.Bytes())); err != nil {
		return fmt.Errorf("what %s answered makes no cassette: %w", x.out.Model, err)
	}
	return write(filepath.Join(x.options.Record, x.task.Name+".jsonl"), text.Bytes())
}

// write writes a file whole, or not at all.
func write(path string, b []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Sync(), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(tmp.Name(), path), durable.SyncDir(dir))
}

// step is an answer as a cassette has it.
func step(m contract.Message) (cassette.Step, error) {
	s := cassette.Step{}
	for _, p := range m.Parts {
		switch {
		case p.Call != nil:
			args := redact.Shaped(string(p.Call.Args))
			if len(args) == 0 || args[0] != '{' {
				args = "{}" // the model wrote what no tool accepts
			}
			s.Calls = append(s.Calls, cassette.Call{Name: p.Call.Name, Args: []byte(args)})
		case p.Text != "":
			s.Text += redact.Shaped(p.Text)
		}
	}
	if s.Text == "" && len(s.Calls) == 0 {
		s.Stop = "end"
	}
	return s, nil
}
