package gateway_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

// faulty is a row of the table of faults.
type faulty struct {
	name     string
	turns    []modelserver.Turn
	ends     string        // as ended says it; what may be instead is behind a bar
	least    time.Duration // that was waited
	most     time.Duration
	told     bool // that it waits
	requests int  // at most
	limits   func(*gateway.Limits)
}

// ended says how a call ended: the code of its error, or what the turn has and why it stopped where that is not its end.
func ended(turn contract.Turn, err error) string {
	if err != nil {
		return cmp.Or(code(err), err.Error())
	}
	if turn.Stop == contract.StopTruncate {
		return "truncated"
	}
	var said []string
	for _, p := range turn.Message.Parts {
		switch {
		case p.Call != nil && p.Call.Cut:
			said = append(said, p.Call.Name+" cut")
		case p.Call != nil:
			said = append(said, p.Call.Name+string(p.Call.Args))
		case p.Reasoning == nil:
			said = append(said, p.Text)
		}
	}
	if turn.Stop != contract.StopEnd && turn.Stop != contract.StopToolUse {
		said = append(said, "("+string(turn.Stop)+")")
	}
	return cmp.Or(strings.Join(said, " "), "nothing")
}

// faults is the table: what each service may do wrong, in each format.
func faults() []faulty {
	status := func(code int, after string) modelserver.Turn {
		return modelserver.Turn{Text: "not now", Fault: &modelserver.Fault{Kind: "status", Status: code, RetryAfter: after}}
	}
	kind := func(k string) modelserver.Turn {
		return modelserver.Turn{Text: "once upon", Fault: &modelserver.Fault{Kind: k}}
	}
	paced := func(k string, ms int, t modelserver.Turn) modelserver.Turn {
		t.Fault = &modelserver.Fault{Kind: k, PauseMS: ms}
		return t
	}
	in := func(kind string, calls ...modelserver.Call) []modelserver.Turn {
		t := modelserver.Turn{Calls: calls}
		if kind != "" {
			t.Fault = &modelserver.Fault{Kind: kind}
		}
		return []modelserver.Turn{t}
	}
	stops := func(stop string, calls ...modelserver.Call) []modelserver.Turn {
		return []modelserver.Turn{{Text: "here", Stop: stop, Calls: calls}}
	}
	broken := func(code, text string) modelserver.Turn {
		return modelserver.Turn{Text: text, Stop: "failed", Code: code}
	}
	fine := modelserver.Turn{Text: "here", Usage: &modelserver.Usage{In: 10, Out: 5}}
	forever := func(t modelserver.Turn) []modelserver.Turn { return times(200, t) }
	const argsA, argsB = `{"path":"the/first/of/two/files.txt"}`, `{"path":"the/second/of/two/files.txt"}`
	a, b := modelserver.Call{ID: "c1", Name: "read", Raw: argsA}, modelserver.Call{ID: "c2", Name: "read", Raw: argsB}
	b1 := b
	b1.ID = a.ID
	both := "read" + argsA + " read" + argsB
	raw := func(args string) modelserver.Call { return modelserver.Call{ID: "c1", Name: "read", Raw: args} }
	long := strings.Repeat("it comes in many pieces ", 20)
	// Where nothing is to come, that is noticed soon; what does come in time is not always on a busy machine, and repeats.
	quick := func(l *gateway.Limits) {
		l.FirstByte, l.Idle, l.Stall = 40*time.Millisecond, 40*time.Millisecond, 80*time.Millisecond
	}
	soon := func(l *gateway.Limits) {
		l.FirstByte, l.Idle, l.Stall = 300*time.Millisecond, 300*time.Millisecond, 600*time.Millisecond
	}
	repeated := fine
	repeated.Repeat = true
	return []faulty{
		{name: "429 without retry-after, 20 s", turns: append(times(6, status(429, "")), fine), ends: "here", least: 10 * time.Second, most: 2 * time.Minute, told: true},
		{name: "429 without retry-after, 10 min", turns: append(times(18, status(429, "")), fine), ends: "here", least: 8 * time.Minute, most: 20 * time.Minute, told: true},
		{name: "429 with retry-after 20", turns: append(times(1, status(429, "20")), fine), ends: "here", least: 20 * time.Second, most: time.Minute, told: true, requests: 2},
		{name: "429 with retry-after 600", turns: append(times(1, status(429, "600")), fine), ends: "here", least: 10 * time.Minute, most: 11 * time.Minute, told: true, requests: 2},
		{name: "429 for ever", turns: forever(status(429, "")), ends: "rate_limited", least: 25 * time.Minute, most: 40 * time.Minute, told: true},
		{name: "500 once", turns: append(times(1, status(500, "")), fine), ends: "here", most: time.Minute, requests: 2},
		{name: "502 once", turns: append(times(1, status(502, "")), fine), ends: "here", most: time.Minute, requests: 2},
		{name: "503 for ever", turns: forever(status(503, "")), ends: "unavailable", least: 25 * time.Minute, most: 40 * time.Minute, told: true},
		{name: "503 with retry-after 60", turns: append(times(1, status(503, "60")), fine), ends: "here", least: time.Minute, most: 2 * time.Minute, told: true, requests: 2},
		{name: "504 once", turns: append(times(1, status(504, "")), fine), ends: "here", most: time.Minute, requests: 2},
		{name: "529 for 10 min", turns: append(times(18, status(529, "")), fine), ends: "here", least: 8 * time.Minute, most: 20 * time.Minute, told: true},
		{name: "overloaded within the stream, once", turns: []modelserver.Turn{broken("overloaded_error", "Overloaded"), fine}, ends: "here", most: time.Minute, requests: 2},
		{name: "overloaded within the stream, for 10 min", turns: append(times(18, broken("overloaded_error", "Overloaded")), fine), ends: "here", least: 8 * time.Minute, most: 20 * time.Minute, told: true, requests: 19},
		{name: "401", turns: times(1, status(401, "")), ends: "unauthorized|invalid|no_model", requests: 1},
		{name: "400", turns: times(1, status(400, "")), ends: "invalid", requests: 1},
		{name: "413", turns: times(1, status(413, "")), ends: "too_large", requests: 1},
		{name: "over the window", turns: []modelserver.Turn{{Text: "prompt is too long: 210000 tokens > 200000 maximum", Fault: &modelserver.Fault{Kind: "status", Status: 400}}}, ends: "overflow", requests: 1},
		{name: "over the window, within the stream", turns: []modelserver.Turn{broken("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")}, ends: "overflow", requests: 1},
		{name: "garbage once", turns: append(times(1, kind("garbage")), fine), ends: "here", most: time.Minute, requests: 2},
		{name: "cut once", turns: append(times(1, kind("cut")), fine), ends: "here", most: time.Minute, requests: 2},
		{name: "cut for 10 min", turns: append(times(18, kind("cut")), fine), ends: "here", least: 8 * time.Minute, most: 20 * time.Minute, told: true, requests: 19},
		{name: "cut for ever", turns: forever(kind("cut")), ends: "unavailable|malformed|invalid", least: 25 * time.Minute, most: 40 * time.Minute, told: true}, // each try costs

		{name: "never answers, once", turns: append(times(1, kind("hang")), repeated), ends: "here", most: time.Minute, limits: soon},
		{name: "never answers, for ever", turns: forever(kind("hang")), ends: "timeout", least: 25 * time.Minute, most: 40 * time.Minute, told: true, limits: quick},
		{name: "stalls once", turns: append(times(1, kind("stall")), repeated), ends: "here", most: time.Minute, limits: soon},
		{name: "pings only, once", turns: append(times(1, paced("pings", 20, modelserver.Turn{})), repeated), ends: "here", most: time.Minute, limits: soon},
		{name: "pings only, for ever", turns: forever(paced("pings", 5, modelserver.Turn{})), ends: "timeout", least: 25 * time.Minute, most: 40 * time.Minute, told: true, limits: quick},
		{name: "answers late", turns: times(1, paced("late", 500, fine)), ends: "here", requests: 1},
		{name: "a slow drip", turns: times(1, paced("drip", 40, modelserver.Turn{Text: long})), ends: long, requests: 1, limits: func(l *gateway.Limits) { l.Stall = 700 * time.Millisecond }},
		{name: "thinks for long", turns: times(1, paced("drip", 40, modelserver.Turn{Reasoning: []modelserver.Thought{{ID: "rs_1", Text: long, Opaque: "c2ln"}}, Text: "here"})), ends: "here", requests: 1,
			limits: func(l *gateway.Limits) { l.Stall = 700 * time.Millisecond }},

		{name: "text without end", turns: times(1, kind("endless")), ends: "truncated", requests: 1},
		{name: "thoughts without end", turns: times(1, kind("thoughts")), ends: "truncated", requests: 1},
		{name: "arguments without end", turns: times(1, kind("arguments")), ends: "truncated", requests: 1},
		{name: "ten megabytes", turns: times(1, kind("big_text")), ends: "truncated", requests: 1},
		{name: "a thousand calls", turns: times(1, kind("many_calls")), ends: "truncated", requests: 1},

		{name: "calls interleaved", turns: in("interleaved", a, b), ends: both, requests: 1},
		{name: "calls all of index zero", turns: in("index_zero", a, b), ends: both, requests: 1},
		{name: "calls all of index zero and one id", turns: in("index_zero", a, b1), ends: both, requests: 1},
		{name: "calls of one id", turns: in("", a, b1), ends: both, requests: 1},
		{name: "a call sent twice", turns: in("", a, a), ends: "read" + argsA, requests: 1},
		{name: "a call sent twice under one index", turns: in("index_zero", a, a), ends: "read" + argsA, requests: 1},
		{name: "a call without its end", turns: in("", raw(`{"path": "a`)), ends: `read"{\"path\": \"a"`, requests: 1},
		{name: "arguments that are no JSON", turns: in("", raw(`{path: a}`)), ends: `read"{path: a}"`, requests: 1},
		{name: "arguments that are a list", turns: in("", raw(`["a"]`)), ends: `read["a"]`, requests: 1},
		{name: "a call without a name", turns: in("", modelserver.Call{ID: "c1", Raw: "{}"}), ends: "unnamed_1{}", requests: 1},

		{name: "an empty turn", turns: []modelserver.Turn{{}}, ends: "nothing", requests: 1},
		{name: "cut by its length", turns: stops("length"), ends: "here (length)", requests: 1},
		{name: "cut by its length within a call", turns: stops("length", raw(`{"path": "a`)), ends: "here read cut (length)", requests: 1},
		{name: "cut by the window", turns: stops("model_context_window_exceeded"), ends: "here (length)|here", requests: 1},
		{name: "declined", turns: stops("refusal"), ends: "here (refusal)", requests: 1},
		{name: "a stop of no format", turns: stops("galaxy"), ends: "here", requests: 1},
		{name: "no stop, once", turns: append(stops("none"), fine), ends: "here", most: time.Minute, requests: 2},
		{name: "a stop for calls, and none", turns: stops("tool_use"), ends: "here", requests: 1},
		{name: "calls, and a stop for none", turns: stops("end", a), ends: "here read" + argsA, requests: 1},
	}
}

// TestEveryFaultEndsRight prints the table of faults: how a call of a loop ends that waits for as long as it is allowed to. Its
// end, what was told to the user, and what was metered are right for each, and it keeps within its requests, tokens and time.
func TestEveryFaultEndsRight(t *testing.T) {
	const tokens = 100_000
	for _, c := range faults() {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, wire modelserver.Wire) {
				g, s, m, clock, told, sc := patient(t, wire, func(o *gateway.Options) {
					o.Limits.FirstByte, o.Limits.Idle, o.Limits.Stall = 20*time.Second, 20*time.Second, 20*time.Second
					if c.limits != nil {
						c.limits(&o.Limits)
					}
				}, c.turns...)
				sc.Budget = contract.Budget{Tokens: tokens}
				turn, err := g.Turn(t.Context(), sc, say("x"), nil)
				end := ended(turn, err)
				made := len(s.Requests())
				t.Logf("%-36s %-10s → %-40.40s after %3d requests and %s", c.name, wire, end, made, clock.Now().Round(time.Second))
				if !slices.Contains(strings.Split(c.ends, "|"), end) {
					t.Errorf("it ended as %q (%v); want one of %s", end, err, c.ends)
				}
				if w := clock.Now(); w < c.least || w > c.most {
					t.Errorf("it waited %s; want %s to %s", w, c.least, c.most)
				}
				if most := cmp.Or(c.requests, 60); made == 0 || made > most {
					t.Errorf("%d requests; want at most %d", made, most)
				}
				if c.told != (len(told.waiting) > 0) {
					t.Errorf("told of waits: %+v", told.waiting)
				}
				if c.told && len(told.resumed) == 0 {
					t.Error("nobody was told how the wait ended")
				}
				var used contract.Usage
				for _, u := range m.taken() {
					used = used.Add(u.Usage)
				}
				if n := len(m.taken()); n != 1 || used.TokensIn+used.TokensOut > tokens {
					t.Errorf("%d times metered, %d tokens of %d", n, used.TokensIn+used.TokensOut, tokens)
				}
				if err == nil && !slices.Contains([]contract.StopReason{contract.StopEnd, contract.StopToolUse, contract.StopLength, contract.StopRefusal, contract.StopTruncate}, turn.Stop) {
					t.Errorf("it stopped for %q", turn.Stop)
				}
				var te *contract.TurnError
				if errors.As(err, &te) && c.told && te.Retriable {
					t.Error("what was waited for is to be waited for again")
				}
			})
		})
	}
}

// recorded is an answer as it came over the wire.
type recorded struct {
	header http.Header
	body   []byte
}

// cut is the answer up to a byte, and then the end of the stream, or of the connection.
func (r recorded) cut(n int, abruptly bool) *http.Response {
	body := io.Reader(bytes.NewReader(r.body[:n]))
	if abruptly {
		body = io.MultiReader(body, brokenOff{})
	}
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: r.header.Clone(), Body: io.NopCloser(body), ContentLength: -1}
}

type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestEveryCutOfAnAnswer: an answer is recorded in each format and then cut at each of its bytes, by the end of the stream and by
// the end of the connection. It is whole, or asked for again and then whole: never shorter, and no call of it comes twice.
func TestEveryCutOfAnAnswer(t *testing.T) {
	each(t, func(t *testing.T, wire modelserver.Wire) {
		var tape recorded
		var answers func(req *http.Request) (*http.Response, error)
		requests := 0
		transport := roundTrip(func(req *http.Request) (*http.Response, error) {
			requests++
			return answers(req)
		})
		g, _, m, _, _, sc := patient(t, wire, func(o *gateway.Options) {
			o.HTTPClient = &http.Client{Transport: transport}
			o.Limits.Attempts = 2
		}, modelserver.Turn{Text: "So.", Usage: &modelserver.Usage{In: 10, Out: 5}, Calls: []modelserver.Call{
			{ID: "c1", Name: "add", Raw: `{"n":1}`}, {ID: "c2", Name: "end", Raw: `{}`}}})
		answers = func(req *http.Request) (*http.Response, error) {
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			tape.header = resp.Header
			if tape.body, err = io.ReadAll(resp.Body); err != nil {
				return nil, err
			}
			return tape.cut(len(tape.body), false), nil
		}
		whole, err := g.Turn(t.Context(), sc, say("go"), nil)
		if err != nil || ended(whole, err) != `So. add{"n":1} end{}` {
			t.Fatalf("%+v, %v", whole, err)
		}
		same := func(turn contract.Turn) bool {
			return turn.Stop == whole.Stop && bytes.Equal(must(json.Marshal(turn.Message)), must(json.Marshal(whole.Message)))
		}
		kept, again := 0, 0
		for n := range len(tape.body) + 1 {
			at := fmt.Sprintf("cut at byte %d of %d, behind …%q", n, len(tape.body), tape.body[max(0, n-60):n])
			requests = 0
			answers = func(*http.Request) (*http.Response, error) {
				if requests > 1 {
					return tape.cut(len(tape.body), false), nil
				}
				return tape.cut(n, n%2 == 0), nil
			}
			m.all = nil // nothing is under way
			turn, err := g.Turn(t.Context(), sc, say("go"), nil)
			if err != nil || !same(turn) || requests > 2 || len(m.all) != 1 {
				t.Fatalf("%s: %s after %d requests, metered %d times", at, ended(turn, err), requests, len(m.all))
			}
			if requests > 1 {
				again++
			} else {
				kept++
			}
			if n%8 != 0 {
				continue
			}
			// Who has shown what came can't take it back, and is told that asking again may help.
			answers = func(*http.Request) (*http.Response, error) { return tape.cut(n, n%16 == 0), nil }
			var te *contract.TurnError
			if turn, err := g.Turn(t.Context(), scope(), say("go"), func(string) {}); !(err == nil && same(turn)) && !(errors.As(err, &te) && te.Retriable) {
				t.Fatalf("%s: shown, it ended as %s (%v)", at, ended(turn, err), err)
			}
		}
		t.Logf("%-10s %5d bytes, cut at each: %4d times asked for again, %4d times whole", wire, len(tape.body), again, kept)
		if kept == 0 || again < len(tape.body)/2 {
			t.Error("some cuts leave it whole, and most do not")
		}
	})
}
