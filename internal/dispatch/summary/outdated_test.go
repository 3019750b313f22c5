package summary_test

import (
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/summary"
	story "choir.dev/choiros/internal/run"
)

// TestFactsHaveWhatOthersChanged: what a loop was told of it may have been left out by a compaction; each file stands there once, as it was changed last,
// with what recall is asked for.
func TestFactsHaveWhatOthersChanged(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	task := &story.Task{Outdated: []contract.Outdated{
		{Attempt: 1, Files: []contract.OutdatedPath{{Path: "a.txt", By: contract.KindPerson, Seq: 1, Time: at}, {Path: "b.txt", By: contract.KindAssociate, Seq: 2, Time: at}}},
		{Attempt: 1, Files: []contract.OutdatedPath{{Path: "a.txt", By: contract.KindApp, Removed: true, Seq: 3, Time: at}}},
	}}
	facts := summary.Facts(story.New("r"), task, nil, 4<<10)
	const want = `"a.txt" removed by the user's desktop at 03:04:05 UTC [changed-2]
"b.txt" changed by another task at 03:04:05 UTC [changed-1]`
	if !strings.Contains(facts, want) {
		t.Errorf("facts are\n%s\nwithout\n%s", facts, want)
	}
}
