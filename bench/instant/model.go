// Package instant is a model that answers at once, for what is measured beside it.
package instant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"choir.dev/choiros/eval/cassette"
	"choir.dev/choiros/internal/lazy"
)

// Name is what the model is called, as provider/model.
const Name = "instant/" + cassette.Prefix + "looks"

// Asking is the model of a prompt whose Director asks its user, who has a day to answer.
const Asking = "instant/" + cassette.Prefix + "asks"

// Asks is a prompt by which the requests of one run are told from another's.
func Asks(n int) string { return fmt.Sprintf("Look on, number %d.", n) }

var asks = lazy.Regexp(`Look on, number \d+\.`)

// Model is a model server that plays the cassette of a task of many turns, each a command. It notes when it was asked.
type Model struct {
	URL string // what its provider's base_url is

	player *cassette.Player
	server *httptest.Server

	mu       sync.Mutex
	hold     chan struct{} // closed: it answers; nil: it always does
	asked    int
	answered time.Time
	gaps     []time.Duration
	arrived  map[string][]time.Time // by prompt of Asks
}

// New starts a model whose task has so many turns. A Director that is asked gives it to one Associate.
func New(turns int) (*Model, error) {
	c, err := looking(turns)
	asking, failed := tape("asks", step{cassette.Director, "ask_user", object{"text": "Which?", "choices": []any{"a", "b"}, "default": "a", "deadline_s": 24 * 60 * 60}},
		step{cassette.Director, "report", object{"status": "done", "summary": "Asked."}})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	m := &Model{player: cassette.NewPlayer(), arrived: map[string][]time.Time{}}
	m.player.Put("looks", c)
	m.player.Put("asks", asking)
	m.server = httptest.NewServer(m)
	m.URL = m.server.URL + "/v1"
	return m, nil
}

// Close ends the server; what it holds is let go.
func (m *Model) Close() { m.server.Close() }

type object = map[string]any

// step is a call of a tape.
type step struct {
	role, name string
	args       object
}

func looking(turns int) (*cassette.Cassette, error) {
	steps := []step{{cassette.Director, "delegate", object{"tasks": []any{object{"kind": "agent", "goal": "look on", "tools": []any{"bash"}, "verify": object{"profile": "none"}}}}}}
	for n := range turns {
		steps = append(steps, step{cassette.Associate, "bash", object{"command": fmt.Sprintf("echo %d", n)}})
	}
	return tape("looks on", append(steps, step{cassette.Associate, "finish", object{"status": "ok", "summary": "Seen."}},
		step{cassette.Director, "report", object{"status": "done", "summary": "Seen."}})...)
}

func tape(about string, steps ...step) (*cassette.Cassette, error) {
	c := &cassette.Cassette{Head: cassette.Head{Cassette: cassette.Version, Origin: cassette.Written, About: about}}
	var errs []error
	for _, s := range steps {
		b, err := json.Marshal(s.args)
		errs = append(errs, err)
		c.Steps = append(c.Steps, cassette.Step{Role: s.role, Calls: []cassette.Call{{Name: s.name, Args: b}}})
	}
	return c, errors.Join(errs...)
}

// ServeHTTP implements http.Handler.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // who asked has gone
	}
	m.mu.Lock()
	m.asked++
	if !m.answered.IsZero() {
		m.gaps = append(m.gaps, at.Sub(m.answered))
	}
	if run := asks().Find(body); run != nil {
		m.arrived[string(run)] = append(m.arrived[string(run)], at)
	}
	hold := m.hold
	m.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.player.ServeHTTP(w, r)
	m.mu.Lock()
	m.answered = time.Now()
	m.mu.Unlock()
}

// Gaps are the times from each answer to the next request, of whichever loop.
func (m *Model) Gaps() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]time.Duration(nil), m.gaps...)
}

// Hold has requests wait from now on, until the function that it returns is called.
func (m *Model) Hold() (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	hold := make(chan struct{})
	m.hold = hold
	return sync.OnceFunc(func() { close(hold) })
}

// Arrivals are the times of each run's requests, by its prompt.
func (m *Model) Arrivals() map[string][]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string][]time.Time, len(m.arrived))
	for run, at := range m.arrived {
		out[run] = append([]time.Time(nil), at...)
	}
	return out
}

// Asked waits until it was asked so many times in all, answered or not.
func (m *Model) Asked(ctx context.Context, n int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		m.mu.Lock()
		asked := m.asked
		m.mu.Unlock()
		if asked >= n {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
