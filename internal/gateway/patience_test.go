package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

// leaping is a clock on which waiting takes no time of the test's.
type leaping struct {
	mu     sync.Mutex
	now    time.Duration
	leaped func(now time.Duration) // called after each wait
}

func (c *leaping) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *leaping) After(d time.Duration) (<-chan struct{}, func()) {
	c.mu.Lock()
	c.now += max(d, 0)
	now, leaped := c.now, c.leaped
	c.mu.Unlock()
	if leaped != nil {
		leaped(now)
	}
	over := make(chan struct{})
	close(over)
	return over, func() {}
}

// listener keeps what it is told of waits.
type listener struct {
	mu      sync.Mutex
	waiting []contract.ModelWaiting
	resumed []contract.ModelResumed
}

func (l *listener) Ready(context.Context) error   { return nil }
func (l *listener) Settled(context.Context) error { return nil }
func (l *listener) Waiting(_ context.Context, w contract.ModelWaiting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, w)
}
func (l *listener) Resumed(_ context.Context, r contract.ModelResumed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resumed = append(l.resumed, r)
}

// patient plays turns to a call that waits on a leaping clock.
func patient(t *testing.T, wire modelserver.Wire, change func(*gateway.Options), turns ...modelserver.Turn) (*gateway.Gateway, *modelserver.Server, *meter, *leaping, *listener, gateway.Scope) {
	t.Helper()
	clock, told := &leaping{}, &listener{}
	g, s, m := play(t, wire, func(o *gateway.Options) {
		o.Clock = clock
		o.Limits.Backoff, o.Limits.MaxRetryGap = 500*time.Millisecond, 0
		o.Limits.FirstByte, o.Limits.Idle, o.Limits.Stall = 300*time.Millisecond, 300*time.Millisecond, 600*time.Millisecond
		if change != nil {
			change(o)
		}
	}, turns...)
	sc := scope()
	sc.Waiter = told
	return g, s, m, clock, told, sc
}

func times(n int, t modelserver.Turn) []modelserver.Turn {
	var out []modelserver.Turn
	for range n {
		out = append(out, t)
	}
	return out
}

// TestEveryFaultEndsRight is the table of faults: what each service may do wrong, in each format, and how a call of a loop ends
// that waits for as long as it is allowed to. Its end, what was told to the user, and what was metered are right for each.
func TestEveryFaultEndsRight(t *testing.T) {
	status := func(code int, after string) modelserver.Turn {
		return modelserver.Turn{Text: "not now", Fault: &modelserver.Fault{Kind: "status", Status: code, RetryAfter: after}}
	}
	kind := func(k string) modelserver.Turn {
		return modelserver.Turn{Text: "once upon", Fault: &modelserver.Fault{Kind: k}}
	}
	fine := modelserver.Turn{Text: "here", Usage: &modelserver.Usage{In: 10, Out: 5}}
	forever := func(t modelserver.Turn) []modelserver.Turn { return times(200, t) }
	for _, c := range []struct {
		name  string
		turns []modelserver.Turn
		ends  string        // the text of the turn, or the code of the error
		least time.Duration // that was waited
		most  time.Duration
		told  bool // that it waits
	}{
		{"429 without retry-after, 20 s", append(times(6, status(429, "")), fine), "here", 10 * time.Second, 2 * time.Minute, true},
		{"429 without retry-after, 10 min", append(times(18, status(429, "")), fine), "here", 8 * time.Minute, 20 * time.Minute, true},
		{"429 with retry-after 20", append(times(1, status(429, "20")), fine), "here", 20 * time.Second, time.Minute, true},
		{"429 with retry-after 600", append(times(1, status(429, "600")), fine), "here", 10 * time.Minute, 11 * time.Minute, true},
		{"429 for ever", forever(status(429, "")), "rate_limited", 25 * time.Minute, 40 * time.Minute, true},
		{"500 once", append(times(1, status(500, "")), fine), "here", 0, time.Minute, false},
		{"503 for ever", forever(status(503, "")), "unavailable", 25 * time.Minute, 40 * time.Minute, true},
		{"529 for 10 min", append(times(18, status(529, "")), fine), "here", 8 * time.Minute, 20 * time.Minute, true},
		{"401", times(1, status(401, "")), "unauthorized invalid no_model", 0, 0, false},
		{"400", times(1, status(400, "")), "invalid", 0, 0, false},
		{"garbage once", append(times(1, kind("garbage")), fine), "here", 0, time.Minute, false},
		{"cut once", append(times(1, kind("cut")), fine), "here", 0, time.Minute, false},
		{"cut for ever", forever(kind("cut")), "unavailable malformed invalid", 0, 10 * time.Minute, false},
		{"never answers, once", append(times(1, kind("hang")), fine), "here", 0, time.Minute, false},
		{"stalls once", append(times(1, kind("stall")), fine), "here", 0, time.Minute, false},
		{"text without end", times(1, kind("endless")), "truncated", 0, 0, false},
		{"ten megabytes", times(1, kind("big_text")), "truncated", 0, 0, false},
		{"a thousand calls", times(1, kind("many_calls")), "truncated", 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, wire modelserver.Wire) {
				g, s, m, clock, told, sc := patient(t, wire, nil, c.turns...)
				turn, err := g.Turn(t.Context(), sc, say("x"), nil)
				end := code(err)
				if err == nil {
					end = "truncated"
					if turn.Stop != contract.StopTruncate {
						end = turn.Message.Parts[len(turn.Message.Parts)-1].Text
					}
				}
				t.Logf("%-34s %-10s → %-12s after %3d requests and %s", c.name, wire, end, len(s.Requests()), clock.Now().Round(time.Second))
				if end == "" || !strings.Contains(" "+c.ends+" ", " "+end+" ") {
					t.Errorf("it ended as %q (%v); want one of %s", end, err, c.ends)
				}
				if w := clock.Now(); w < c.least || (c.most > 0 && w > c.most) || (c.most == 0 && w > 0) {
					t.Errorf("it waited %s; want %s to %s", w, c.least, c.most)
				}
				if c.told != (len(told.waiting) > 0) {
					t.Errorf("told of waits: %+v", told.waiting)
				}
				if c.told && len(told.resumed) == 0 {
					t.Error("nobody was told how the wait ended")
				}
				if n := len(m.taken()); n != 1 {
					t.Errorf("%d times metered", n)
				}
				var te *contract.TurnError
				if errors.As(err, &te) && c.told && te.Retriable {
					t.Error("what was waited for is to be waited for again")
				}
			})
		})
	}
}

// TestAFallbackAnswersInThePlace: a model that has failed for a while is stood in for, and it is said by which.
func TestAFallbackAnswersInThePlace(t *testing.T) {
	backup := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "in its place"}}}).Start()
	defer backup.Close()
	down := modelserver.Turn{Text: "down", Fault: &modelserver.Fault{Kind: "status", Status: 503}}
	g, _, m, clock, told, sc := patient(t, modelserver.Anthropic, func(o *gateway.Options) {
		o.OpenAIBaseURL = backup.OpenAIURL()
		o.Fallback = map[string][]string{gateway.AnyModel: {"openai/gpt-5.4"}}
	}, times(200, down)...)
	turn, err := g.Turn(t.Context(), sc, say("x"), nil)
	if err != nil || turn.Provider != "openai" || turn.Message.Parts[0].Text != "in its place" {
		t.Fatalf("%+v, %v", turn, err)
	}
	if w := clock.Now(); w < time.Minute || w > 5*time.Minute {
		t.Errorf("it was waited for %s", w)
	}
	if n := len(told.resumed); n == 0 || told.resumed[n-1].Instead != "anthropic/claude-sonnet-4-6" {
		t.Errorf("resumed: %+v", told.resumed)
	}
	var of []string
	for _, u := range m.taken() {
		of = append(of, u.Provider)
	}
	if fmt.Sprint(of) != "[anthropic openai]" {
		t.Errorf("metered %v", of)
	}
}

// TestAnotherModelIsTurnedToAtOnce: a call that waits goes on with the model that its user chooses meanwhile.
func TestAnotherModelIsTurnedToAtOnce(t *testing.T) {
	other := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "the other"}}}).Start()
	defer other.Close()
	down := modelserver.Turn{Text: "down", Fault: &modelserver.Fault{Kind: "status", Status: 529}}
	g, s, _, clock, told, sc := patient(t, modelserver.Anthropic, func(o *gateway.Options) { o.OpenAIBaseURL = other.OpenAIURL() }, times(200, down)...)
	var mu sync.Mutex
	chosen, another := "", make(chan struct{})
	sc.Chosen = func() (string, <-chan struct{}) {
		mu.Lock()
		defer mu.Unlock()
		return chosen, another
	}
	clock.leaped = func(now time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if now > 5*time.Second && chosen == "" {
			chosen = "openai/gpt-5.4"
			close(another)
			another = make(chan struct{})
		}
	}
	turn, err := g.Turn(t.Context(), sc, say("x"), nil)
	if err != nil || turn.Message.Parts[0].Text != "the other" {
		t.Fatalf("%+v, %v after %d requests", turn, err, len(s.Requests()))
	}
	switched := false
	for _, r := range told.resumed {
		switched = switched || r.Outcome == contract.WaitSwitched
	}
	if !switched {
		t.Errorf("resumed: %+v", told.resumed)
	}
}
