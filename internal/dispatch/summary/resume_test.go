package summary_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
)

func call(id string) contract.Part {
	return contract.Part{Call: &contract.ToolCall{ID: id, Name: "ls", Args: json.RawMessage(`{"path":"."}`)}}
}

func turn(index int, calls ...contract.Part) contract.TurnRecorded {
	return contract.TurnRecorded{Index: index, Message: contract.Message{Role: contract.MessageAssistant, Parts: calls}}
}

func answered(t contract.TurnRecorded) contract.TurnRecorded {
	msg := contract.Message{Role: contract.MessageUser}
	for _, p := range t.Message.Parts {
		msg.Parts = append(msg.Parts, contract.Part{Return: &contract.ToolReturn{ID: p.Call.ID, Content: "a.sh"}})
	}
	t.Returns = []contract.Message{msg}
	return t
}

// answers is a model that answers with one call and then declines.
type answers struct{ id string }

func (a *answers) Turn(context.Context, contract.TurnRequest, func(string)) (contract.Turn, error) {
	if a.id == "" {
		return contract.Turn{}, &contract.TurnError{Code: "no_model", Message: "no more"}
	}
	p := call(a.id)
	a.id = ""
	return contract.Turn{Stop: contract.StopToolUse, Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{p}}}, nil
}

type ls struct{}

func (ls) Specs() []contract.ToolSpec {
	return []contract.ToolSpec{{Name: "ls", Schema: json.RawMessage(`{"type":"object"}`)}}
}
func (ls) ReadOnly(string) bool { return true }
func (ls) Call(context.Context, contract.ToolCall) (harness.Return, error) {
	return harness.Return{Content: "a.sh"}, nil
}

// TestIdsOfCallsAreUsedOnceAfterACompactionToo: the host refuses a call whose id it has seen, so a loop that resumes
// behind a compaction knows the ids of calls that are not sent any more.
func TestIdsOfCallsAreUsedOnceAfterACompactionToo(t *testing.T) {
	turns := []contract.TurnRecorded{answered(turn(0, call("call_0"))), answered(turn(1, call("call_1"))), answered(turn(2, call("call_2"))),
		{Index: 3, Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Text: "sum"}}}, Compacted: &contract.Compaction{Keeps: 2, Text: "sum"}}}
	turns[0].Told = "the goal"
	for _, id := range []string{"call_0", "call_1", "call_2"} {
		var made string
		_, err := harness.Run(t.Context(), harness.Options{Model: &answers{id: id}, Tools: ls{}, History: harness.History(summary.Sent(turns)),
			Opening: func(context.Context) (string, error) { return "another goal", nil },
			Record: func(_ context.Context, r harness.Record) error {
				made = r.Message.Parts[0].Call.ID
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		if made == "" || made == id {
			t.Errorf("a second call has the id %q", made)
		}
	}
}

// TestATurnInTheMiddleIsCompletedFromTheLog: the versions before did not record what they had answered for a turn that was cut
// short, and went on behind it.
func TestATurnInTheMiddleIsCompletedFromTheLog(t *testing.T) {
	task := &story.Task{Turns: []contract.TurnRecorded{turn(0, call("a"), call("b"), call("c")), answered(turn(1, call("d")))},
		Calls:   []contract.ToolCalled{{Call: "a"}, {Call: "b"}, {Call: "d"}},
		Returns: map[string]contract.ToolReturned{"a": {Call: "a", OK: true, Output: "what a returned"}, "d": {Call: "d", OK: true}}}
	got := summary.Resumable(task)
	if len(got) != 2 || len(got[0].Returns) != 1 || got[0].Returns[0].Parts[0].Return.Content != "what a returned" || got[0].Usage.ToolCalls != 2 {
		t.Fatalf("%+v", got)
	}
	closed := summary.Closed(task.Turns, got)
	if len(closed) != 1 || closed[0].Index != 0 || len(closed[0].Returns[0].Parts) != 3 {
		t.Errorf("to be recorded are %+v", closed)
	}
	if task.Turns[0].Returns != nil {
		t.Error("the story was changed")
	}
}

// TestTheUsersWordsSurviveACompaction: a loop is told what the user said once, so a compaction that leaves it out loses it.
func TestTheUsersWordsSurviveACompaction(t *testing.T) {
	s, task := story.New("r"), &story.Task{Returns: map[string]contract.ToolReturned{}}
	for i := range 3 {
		s.Steering = append(s.Steering, fmt.Sprintf("word %d begins, %s and ends in %d", i, strings.Repeat("very ", 160), i))
	}
	long := strings.Repeat("deep/", 60)
	for i := range 300 {
		id := fmt.Sprintf("c%d", i)
		task.Calls = append(task.Calls, contract.ToolCalled{Call: id, Name: "write", Args: json.RawMessage(fmt.Sprintf(`{"path":"%s%d"}`, long, i))})
		task.Returns[id] = contract.ToolReturned{Call: id, OK: i%2 == 0, Output: "no"}
	}
	for most, words := range map[int]int{3200: 1, 8000: 3, 19660: 3} {
		got := summary.Facts(s, task, nil, most)
		for i := 3 - words; i < 3; i++ {
			if !strings.Contains(got, fmt.Sprintf("word %d begins", i)) || !strings.Contains(got, fmt.Sprintf("ends in %d", i)) {
				t.Errorf("of %d bytes none have the user's word %d:\n%s", most, i+1, got[:min(len(got), 600)])
			}
		}
		if len(got) > most || !strings.Contains(got, "299 [c") && !strings.Contains(got, "298 [c") && !strings.Contains(got, "[c299]") {
			t.Errorf("%d bytes of at most %d, and the newest call is not there", len(got), most)
		}
	}
	s.Steering = []string{"begins " + strings.Repeat("very ", 800) + "ends"}
	if got := summary.Facts(s, task, nil, 3200); !strings.Contains(got, "The user says (1): begins") || !strings.Contains(got, "ends") {
		t.Errorf("a word that does not fit is not told:\n%s", got)
	}
}
