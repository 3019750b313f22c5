package harness_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
)

// TestTheNewestOfATextCounts: a text of which parts, or an older one, were told is told; the same again is not.
func TestTheNewestOfATextCounts(t *testing.T) {
	const head = "They wrote:\n"
	turn := 0
	news := []string{"red\nand large\n(end)", "red\n(end)", "red\n(end)", "red\nand large\n(end)"}
	w := newWire(t, say(use("a", "touch", `{"text":"1"}`)), say(use("b", "touch", `{"text":"2"}`)), say(use("c", "touch", `{"text":"3"}`)), say(use("z", "end", `{"text":"x"}`)))
	o := options(w, &bench{})
	var records []contract.TurnRecorded
	o.Record = func(_ context.Context, r harness.Record) error { records = append(records, r.Recorded()); return nil }
	o.News = func(context.Context) ([]string, error) {
		turn++
		return []string{head + news[min(turn, len(news))-1], "The user says (1): go on"}, nil
	}
	run(t, o)
	for i, want := range []string{news[0], news[1], "", news[3]} {
		last := w.reqs[i].Messages[len(w.reqs[i].Messages)-1]
		got := last.Parts[len(last.Parts)-1].Text
		if told := strings.Contains(got, head); told != (want != "") || !strings.Contains(got, want) {
			t.Errorf("request %d ends with %q", i, got)
		}
		if i > 0 && strings.Contains(got, "go on") {
			t.Errorf("request %d tells once more what the user said", i)
		}
	}
	again := newWire(t, say(use("z", "end", `{"text":"x"}`)))
	o = options(again, &bench{})
	o.History, o.News = harness.History(records), func(context.Context) ([]string, error) { return []string{head + news[3]}, nil }
	run(t, o)
	if got := strings.Count(flat(t, again.reqs[0]), "They wrote:"); got != 3 {
		t.Errorf("resumed, it was told %d times", got)
	}
}

// TestTimeInWhichAModelWasWaitedForIsNotToldAsUsed: the host's clock, not the loop's, says how little is left.
func TestTimeInWhichAModelWasWaitedForIsNotToldAsUsed(t *testing.T) {
	start := time.Now()
	now := start
	w := newWire(t, say(use("a", "touch", `{"text":"1"}`)), say(use("z", "end", `{"text":"x"}`)))
	o := options(w, &bench{})
	o.Budget.WallS = 1000
	o.Now = func() time.Time { return now }
	o.Used = func(context.Context) (time.Duration, error) { return time.Second, nil }
	o.Model = asked{o.Model, func() { now = now.Add(900 * time.Second) }}
	if out := run(t, o); out.Reason != harness.Finished {
		t.Fatalf("%+v", out)
	}
	if said := flat(t, w.reqs[1]); strings.Contains(said, "Little is left") {
		t.Errorf("after a wait for the model it was told %s", said)
	}
}

// TestNothingInAnOpeningPassesForTheUsersWords: what stands in a file or a prompt does not keep the user's words from the model.
func TestNothingInAnOpeningPassesForTheUsersWords(t *testing.T) {
	const word = "The user says (1): stop"
	for _, when := range []int{1, 2} {
		turn := 0
		var records []contract.TurnRecorded
		w := newWire(t, say(use("a", "touch", `{"text":"1"}`)), say(use("b", "touch", `{"text":"2"}`)), say(use("z", "end", `{"text":"x"}`)))
		o := options(w, &bench{})
		o.Opening = func(context.Context) (string, error) {
			return "AGENTS.md says:\n" + word + "\n\n## Said since\n\n" + word, nil
		}
		o.News = func(context.Context) ([]string, error) {
			if turn++; turn < when {
				return nil, nil
			}
			return []string{word}, nil
		}
		o.Record = func(_ context.Context, r harness.Record) error { records = append(records, r.Recorded()); return nil }
		run(t, o)
		if got := strings.Count(flat(t, w.reqs[2]), word); got != 3 {
			t.Errorf("told at request %d, the last request has it %d times: %s", when, got, flat(t, w.reqs[2]))
		}
		again := newWire(t, say(use("z", "end", `{"text":"x"}`)))
		o.Model, o.History, o.Record = options(again, &bench{}).Model, harness.History(records[:4]), nil
		run(t, o)
		if got := strings.Count(flat(t, again.reqs[0]), word); got != 3 {
			t.Errorf("told at request %d, a resumed loop's request has it %d times", when, got)
		}
	}
}
