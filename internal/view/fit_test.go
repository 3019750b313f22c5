package view_test

import (
	"encoding/json"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// TestAnswersFit shows that an answer that is larger than its message may be is cut, says so, and
// stays valid JSON.
func TestAnswersFit(t *testing.T) {
	const most = 700 << 10
	changes := make([]contract.Change, 20000)
	for i := range changes {
		changes[i] = contract.Change{Path: strings.Repeat("p", 100), Op: contract.ChangeModified}
	}
	list, cut, err := view.Fit(changes, most)
	if err != nil || !cut || len(list) == 0 || len(list) == len(changes) {
		t.Errorf("%d, %v, %v", len(list), cut, err)
	}
	size := func(v any, err error) int {
		t.Helper()
		b, jerr := json.Marshal(v)
		if err != nil || jerr != nil {
			t.Error(err, jerr)
		}
		return len(b)
	}
	text := strings.Repeat("+\"<a line>\"\n", 100_000)
	d, err := view.Diff{Changes: changes[:3000], Diff: text}.Fit(most)
	if n := size(d, err); n > most || !d.Truncated || len(d.Diff) == 0 || !strings.HasSuffix(d.Diff, "\n") || len(d.Changes) != 3000 {
		t.Errorf("a diff of %d bytes, %d of text, %d changes", n, len(d.Diff), len(d.Changes))
	}
	p, err := view.Proposal{Body: text, Diff: text}.Fit(most)
	if n := size(p, err); n > most || !p.Truncated || p.Body != "" || p.Diff == "" {
		t.Errorf("a proposal of %d bytes", n)
	}
	r, err := view.Restored{Changes: changes, Kept: make([]view.Kept, 1000)}.Fit(most)
	if n := size(r, err); n > most || !r.Truncated || len(r.Kept) != 50 {
		t.Errorf("a restore of %d bytes, %d kept", n, len(r.Kept))
	}
	// The lists beside the changes may be long too: a restore that was done must not be answered
	// with an error because the answer is too long.
	long := view.Restored{Changes: changes, Kept: make([]view.Kept, 50), Unkept: view.Unkept{Paths: make([]view.UnkeptPath, 100)}}
	for i := range long.Kept {
		long.Kept[i] = view.Kept{Path: strings.Repeat("k", 4096), Reason: "is in no checkpoint"}
	}
	for i := range long.Unkept.Paths {
		long.Unkept.Paths[i] = view.UnkeptPath{Path: strings.Repeat("u", 1000), Reason: "is a socket"}
	}
	r, err = long.Fit(most)
	if n := size(r, err); n > most || !r.Truncated || len(r.Changes) == 0 || len(r.Kept) != 50 || len(r.Unkept.Paths) != 100 {
		t.Errorf("a restore of %d bytes, %d changes, %d kept, %d not", n, len(r.Changes), len(r.Kept), len(r.Unkept.Paths))
	}
	for i := range long.Kept {
		long.Kept[i].Path = strings.Repeat("\x01", 4096) // six bytes of JSON each
	}
	if r, err = long.Fit(most); size(r, err) > most || len(r.Changes) == 0 || len(r.Kept) == 0 {
		t.Errorf("a restore of %d bytes, %d changes, %d kept", size(r, nil), len(r.Changes), len(r.Kept))
	}
	run := view.RunHead{Prompt: strings.Repeat("p", 32<<10)}
	s := view.Snapshot{}
	for range 50 {
		s.Runs = append(s.Runs, run)
		s.Checkpoints = append(s.Checkpoints, view.ByName[view.Checkpoint]{Of: view.Checkpoint{ID: "c", Skipped: make([]string, 200), Ignored: make([]string, 200)}})
	}
	if s, err = s.Fit(most); size(s, err) > most || len(s.Runs) == 0 || len(s.Checkpoints[0].Of.Skipped) != 20 || len(s.Checkpoints[0].Of.Ignored) != 10 || s.Documents == nil {
		t.Errorf("a snapshot of %d bytes, %d runs", size(s, nil), len(s.Runs))
	}
}

// TestByName shows that a value's id has the same name as in events, where values are shown beside
// events.
func TestByName(t *testing.T) {
	for want, v := range map[string]any{
		`{"commit":"c1",`: view.ByName[view.Checkpoint]{Of: view.Checkpoint{ID: "c1"}}, `{"document":"d1",`: view.ByName[view.Document]{Of: view.Document{ID: "d1"}},
		`{"id":"p1",`: view.ByName[view.Proposal]{Of: view.Proposal{ID: "p1"}},
	} {
		if b, err := json.Marshal(v); err != nil || !strings.HasPrefix(string(b), want) || !json.Valid(b) {
			t.Errorf("%s: %s, %v", want, b, err)
		}
	}
}
