package meanwhile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/meanwhile"
	"choir.dev/choiros/internal/run"
)

// story is what the log has, and what a task has done.
type story struct {
	t       *testing.T
	events  []contract.Event
	data    []contract.Payload
	task    run.Task
	changed func(from, to string) ([]contract.Change, error)
	asked   []string // what was asked for of checkpoints
}

func (s *story) Read(_ context.Context, after uint64, limit int) ([]contract.Event, error) {
	all := s.events[min(int(after), len(s.events)):]
	return all[:min(limit, len(all))], nil
}

func (s *story) Payload(_ context.Context, e contract.Event) (contract.Payload, error) {
	return s.data[e.Sequence-1], nil
}

func (s *story) add(eventType, source, task string, p contract.Payload) {
	s.events = append(s.events, contract.Event{Sequence: uint64(len(s.events) + 1), Type: eventType, Source: source, Task: task, Time: time.Unix(1e9, 0)})
	s.data = append(s.data, p)
}

func (s *story) checkpoint(commit, parent string) {
	s.add("checkpoint.created", "/computers/c/system", "", &contract.CheckpointCreated{Commit: commit, Parent: parent, Kind: contract.CheckpointAuto, Files: 1})
}

func (s *story) put(path string, sum contract.BlobRef) {
	s.add("file.written", "/computers/c/person", "", &contract.FileWritten{Path: path, SHA256: sum})
}

func (s *story) reads(paths ...string) {
	for _, p := range paths {
		s.task.Calls = append(s.task.Calls, contract.ToolCalled{Call: fmt.Sprint(len(s.task.Calls)), Name: "read", Args: json.RawMessage(`{"path":"` + p + `"}`)})
	}
}

func (s *story) watch() *meanwhile.Watch {
	feed := meanwhile.NewFeed(s, func(_ context.Context, from, to string) ([]contract.Change, error) {
		s.asked = append(s.asked, from+" to "+to)
		return s.changed(from, to)
	})
	return meanwhile.New(meanwhile.Options{Feed: feed, Task: "mine", Base: "base", Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil)),
		Contains: func(_ context.Context, _, paths, _ []string) ([][]bool, error) {
			has := make([]bool, len(paths))
			for i, p := range paths {
				has[i] = !strings.Contains(p, "ignored")
			}
			return [][]bool{has}, nil
		}})
}

// notices returns the files that a loop is told of now.
func (s *story) notices(w *meanwhile.Watch) (paths []string, err error) {
	err = w.Notice(s.t.Context(), uint64(len(s.events)), func(look func(*run.Task)) { look(&s.task) }, func(p contract.Outdated, n int) error {
		if n != len(s.task.Outdated) {
			s.t.Errorf("note %d, but there are %d", n, len(s.task.Outdated))
		}
		s.task.Outdated = append(s.task.Outdated, p)
		for _, f := range p.Files {
			paths = append(paths, f.Path)
		}
		return nil
	})
	return paths, err
}

func (s *story) want(w *meanwhile.Watch, paths ...string) {
	s.t.Helper()
	if got, err := s.notices(w); err != nil || !slices.Equal(got, paths) {
		s.t.Errorf("told of %q, %v; want %q", got, err, paths)
	}
}

// TestWhatATreeWasMadeOfHasNotChangedSince: what came before its checkpoint is in it.
func TestWhatATreeWasMadeOfHasNotChangedSince(t *testing.T) {
	s := &story{t: t}
	s.reads("a", "b", "ignored")
	s.put("a", "")
	s.checkpoint("base", "before")
	s.put("b", "")
	s.put("ignored", "")
	w := s.watch()
	s.want(w, "b")
	s.want(w)
	s.want(s.watch()) // as after a restart
	if len(s.asked) > 0 {
		t.Errorf("trees were compared: %q", s.asked)
	}
}

// TestAFileAndItsDocumentAreOneChange: the document that shows a file has the same content, and is no second change.
func TestAFileAndItsDocumentAreOneChange(t *testing.T) {
	s := &story{t: t}
	s.reads("artifacts/a.md")
	revised := func(sum contract.BlobRef) {
		s.add("document.revised", "/computers/c/person", "", &contract.DocumentRevised{Path: "artifacts/a.md", SHA256: sum})
	}
	w := s.watch()
	s.put("artifacts/a.md", "sha256:one")
	s.want(w, "artifacts/a.md")
	revised("sha256:one")
	s.want(w)
	revised("sha256:two")
	s.want(w, "artifacts/a.md")
	s.add("document.revised", "/computers/c/associate", "mine", &contract.DocumentRevised{Path: "artifacts/a.md", SHA256: "sha256:mine"})
	s.want(w)
}

// TestACheckpointThatCantBeComparedIsTriedAgain: nothing is lost to a keeper that restarts, and one that can't say it at all keeps nobody from
// being told of the rest.
func TestACheckpointThatCantBeComparedIsTriedAgain(t *testing.T) {
	s := &story{t: t}
	s.reads("a", "b", "c")
	w, broken := s.watch(), 2
	s.changed = func(from, to string) ([]contract.Change, error) {
		if to == "never" || broken > 0 {
			broken--
			return nil, errors.New("the keeper restarts")
		}
		return []contract.Change{{Path: "a", Op: contract.ChangeDeleted}, {Path: "other", Op: contract.ChangeModified}}, nil
	}
	s.checkpoint("next", "base")
	for range 2 {
		if got, err := s.notices(w); err == nil || len(got) > 0 {
			t.Errorf("told of %q, %v", got, err)
		}
	}
	s.want(w, "a")
	if !s.task.Outdated[0].Files[0].Removed {
		t.Error("nobody says that it is gone")
	}
	s.checkpoint("never", "next")
	s.put("b", "")
	for range 2 {
		if _, err := s.notices(w); err == nil {
			t.Error("no error")
		}
	}
	s.want(w, "b")
}

// TestWhatACommandNamesIsWorkedWith: by its words, in the folder where they are.
func TestWhatACommandNamesIsWorkedWith(t *testing.T) {
	for command, want := range map[string][]string{
		`cat src/a.txt`:                     {"src/a.txt"},
		`cd src && sed -i 's/x/y/' ./a.txt`: {"src/a.txt"},
		`cat "/computer/src/a.txt"|wc`:      {"src/a.txt"},
		`cat a.txt`:                         {"a.txt"},
		`make`:                              nil,
		`cat /etc/a.txt ../../a.txt`:        nil,
	} {
		s := &story{t: t}
		args, err := json.Marshal(map[string]string{"command": command})
		if err != nil {
			t.Fatal(err)
		}
		s.task.Calls = []contract.ToolCalled{{Call: "c", Name: "bash", Args: args}}
		s.put("src/a.txt", "")
		s.put("a.txt", "")
		if got, err := s.notices(s.watch()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: told of %q, %v; want %q", command, got, err, want)
		}
	}
}
