package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	probeTime  = 200 * time.Millisecond // for what a server on this machine lists
	probeEvery = 10 * time.Second       // and after an error of any
	listTime   = 10 * time.Second
	listEvery  = 5 * time.Minute
)

// lists is what services answered when they were asked for their models. Each is asked in a goroutine of its own, for
// everybody who wants to know meanwhile, which ends with the gateway.
type lists struct {
	mu     sync.Mutex
	of     map[string]*listed // by provider
	ctx    context.Context
	end    context.CancelFunc
	asking sync.WaitGroup
}

// listed is what a service answered last.
type listed struct {
	base, key string // of whom it was asked: another address or key may list others
	models    []string
	err       error
	until     time.Time     // when it is asked again
	answered  bool          // it was asked before
	asked     chan struct{} // closed once it has answered; nil: it is not being asked
}

func newLists() *lists {
	l := &lists{of: map[string]*listed{}}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// close ends the requests that are under way, and waits for them.
func (l *lists) close() {
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.asking.Wait()
}

// errUnlisted is the error of a list that is not known yet.
var errUnlisted = errors.New("the service is being asked for its models")

type knownKey struct{}

// Known has what is asked of a gateway under the context answered from what is known: it waits for no service. What is old
// is asked for aside, and is known to who asks then. The model of PROVIDER/* is * while it is not known.
func Known(ctx context.Context) context.Context { return context.WithValue(ctx, knownKey{}, true) }

func onlyKnown(ctx context.Context) bool { return ctx.Value(knownKey{}) != nil }

// models returns the models that a service lists. It is asked at most once every few minutes, a server on this machine and
// one that did not answer every ten seconds.
func (g *Gateway) models(ctx context.Context, s service) ([]string, error) {
	key, err := g.key(ctx, s)
	if err != nil {
		return nil, err
	}
	l := g.lists
	l.mu.Lock()
	e := l.of[s.name]
	if e == nil || e.base != s.base || e.key != key {
		e = &listed{base: s.base, key: key}
		l.of[s.name] = e
	}
	if e.asked == nil && (!e.answered || g.now().After(e.until)) {
		g.ask(s, e)
	}
	asked, models, err := e.asked, e.models, e.err
	answered := e.answered
	l.mu.Unlock()
	switch {
	case asked == nil || answered && onlyKnown(ctx):
		return models, err
	case onlyKnown(ctx):
		return nil, errUnlisted
	}
	select {
	case <-asked:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return e.models, e.err
}

// ask begins to ask a service for its models. The caller holds the lists' mu.
func (g *Gateway) ask(s service, e *listed) {
	l := g.lists
	if l.ctx.Err() != nil {
		e.models, e.err, e.answered = nil, l.ctx.Err(), true
		return
	}
	asked := make(chan struct{})
	e.asked = asked
	l.asking.Go(func() {
		limit, every := listTime, listEvery
		if s.here {
			limit, every = probeTime, probeEvery
		}
		models, err := g.list(l.ctx, s, e.key, limit)
		if err != nil {
			every = probeEvery
			g.opt.Logger.Debug("a service did not list its models", "provider", s.name, "err", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		e.models, e.err, e.answered, e.until, e.asked = models, err, true, g.now().Add(every), nil
		close(asked)
	})
}

// found returns the models of the model servers on this machine, of those that answer.
func (g *Gateway) found(ctx context.Context) map[string][]string {
	models := map[string][]string{}
	for _, aside := range []context.Context{Known(ctx), ctx} { // all are asked before any is waited for
		for _, s := range g.services {
			if !s.here || s.off {
				continue
			}
			// A key that can't be read is told when one of its models is called.
			if list, err := g.models(aside, s); err == nil {
				models[s.name] = list
			}
		}
	}
	return models
}

// Look has the services asked, aside, that say which model a scope's loop uses: whoever asks next may not wait.
func (g *Gateway) Look(ctx context.Context, s Scope) {
	// That none can be called is told to who wants to call one.
	_, _, _ = g.Resolve(Known(ctx), s)
}

// list asks a service for its models, in the service's order.
func (g *Gateway) list(ctx context.Context, s service, key string, limit time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"models", nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := g.client(s.base, nil).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, errors.New("the answer is not a list of models")
	}
	var out []string
	for _, m := range answer.Data {
		if m.ID != "" && len(m.ID) <= 150 && len(out) < 500 && !slices.Contains(out, m.ID) {
			out = append(out, m.ID)
		}
	}
	return out, nil
}
