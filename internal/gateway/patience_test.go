package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/choirtest"
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

// TestAModelThatHangsIsLeftForTheChosenOne: a request that has had no answer yet, or whose answer has fallen silent, ends
// once the user chooses another model; one that arrives is not thrown away.
func TestAModelThatHangsIsLeftForTheChosenOne(t *testing.T) {
	for name, c := range map[string]struct {
		turn modelserver.Turn
		want string
	}{
		"nothing came":   {modelserver.Turn{Text: "the first", Hold: "h"}, "the other"},
		"it fell silent": {modelserver.Turn{Text: "the first, which is longer", Fault: &modelserver.Fault{Kind: "stall"}}, "the other"},
		"it arrives":     {modelserver.Turn{Text: "the first", Fault: &modelserver.Fault{Kind: "drip", PauseMS: 20}}, "the first"},
	} {
		t.Run(name, func(t *testing.T) {
			other := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "the other"}}}).Start()
			defer other.Close()
			g, s, m := play(t, modelserver.Anthropic, func(o *gateway.Options) {
				o.OpenAIBaseURL = other.OpenAIURL()
				switch name {
				case "nothing came":
					o.Limits.Tell = time.Hour // it is not waited for
				case "it fell silent":
					o.Limits.Tell = 100 * time.Millisecond
				}
			}, c.turn)
			sc, told := scope(), &listener{}
			sc.Waiter = told
			var mu sync.Mutex
			chosen, another := "", make(chan struct{})
			sc.Chosen = func() (string, <-chan struct{}) {
				mu.Lock()
				defer mu.Unlock()
				return chosen, another
			}
			var choose sync.WaitGroup
			choose.Go(func() {
				choirtest.Eventually(t, 20*time.Second, "the first is asked, or answers", func() bool {
					told.mu.Lock()
					defer told.mu.Unlock()
					return len(s.Requests()) > 0 && (name == "nothing came" || len(told.resumed) > 0)
				})
				mu.Lock()
				defer mu.Unlock()
				chosen = "openai/gpt-5.4"
				close(another)
				another = make(chan struct{})
			})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			w := httptest.NewRecorder()
			g.Handler(sc).ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/model/turns", strings.NewReader(`{"messages":[{"role":"user","parts":[{"text":"x"}]}]}`)))
			choose.Wait()
			shown, last := "", contract.TurnChunk{}
			for lines := json.NewDecoder(w.Body); lines.More(); {
				last = contract.TurnChunk{}
				if err := lines.Decode(&last); err != nil {
					t.Fatal(err)
				}
				shown += last.Delta
			}
			if last.Turn == nil || last.Turn.Message.Parts[0].Text != c.want {
				t.Fatalf("%+v after %d requests", last, len(s.Requests()))
			}
			// What was shown of a silent one's answer is void.
			first, void, broke := strings.Cut(shown, "(The answer broke off here.")
			if broke != (name == "it fell silent") || broke && (first == "" || !strings.HasSuffix(void, c.want)) {
				t.Errorf("it was shown: %q", shown)
			}
			if c.want == "the other" {
				var of []string
				for _, u := range m.taken() {
					of = append(of, u.Provider)
				}
				if fmt.Sprint(of) != "[anthropic openai]" {
					t.Errorf("metered %v", of)
				}
			}
		})
	}
}
