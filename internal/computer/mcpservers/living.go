package mcpservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/mcpclient"
	"choir.dev/choiros/internal/sandbox"
)

const (
	idle  = 10 * time.Minute // how long a server runs that nobody calls
	sweep = 30 * time.Second
)

// living are the servers that run, or are reached, now.
type living struct {
	mu     sync.Mutex
	slots  map[string]*slot // by name
	closed bool
	all    sync.WaitGroup
}

// slot is where a server of a name runs. Its lock, a channel of one, is held while one is started.
type slot struct {
	lock chan struct{}
	now  *live
}

// live is one connection to a server, and the box that it runs in, if it does in one.
type live struct {
	*mcpclient.Server
	end     context.CancelFunc // ends it; over is closed when nothing of it is left
	life    context.Context
	over    chan struct{}
	secrets []secret
	stderr  *lastWords

	calls  int // that were begun, of which asking ask what it offers; guarded by living.mu, as are those below
	asking int
	used   time.Duration
}

var errEnded = errors.New("the server ended")

// within is ctx, as long as the server lives.
func (l *live) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.life, func() { cancel(errEnded) })
	return ctx, func() { stop(); cancel(nil) }
}

func (v *living) runs(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.slots[name]
	return s != nil && s.now != nil && s.now.life.Err() == nil
}

// rest says that a call is over.
func (v *living) rest(l *live) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l.calls--
	l.used = awake.Now()
}

// answered says that a call has heard what the server offers; false if the server ended meanwhile.
func (v *living) answered(l *live) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l.life.Err() != nil {
		return false
	}
	l.asking--
	return true
}

// leave says that a call which asks what the server offers is over.
func (v *living) leave(l *live) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l.left()
}

func (l *live) left() {
	l.calls--
	l.asking--
	l.used = awake.Now()
}

// giveUp is leave, and ends the server, unless it works at a call.
func (v *living) giveUp(l *live) (works bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l.left()
	if works = l.calls > l.asking && l.life.Err() == nil; !works {
		l.end()
	}
	return works
}

// take returns the server that runs, for a call.
func (v *living) take(s *slot) *live {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.now == nil || s.now.life.Err() != nil {
		return nil
	}
	s.now.calls++
	s.now.asking++
	return s.now
}

// drop ends the server of a name and waits for it.
func (v *living) drop(name string) {
	v.mu.Lock()
	var l *live
	if s := v.slots[name]; s != nil {
		l = s.now
	}
	delete(v.slots, name)
	v.mu.Unlock()
	if l != nil {
		l.end()
		<-l.over
	}
}

// Keep ends servers that nobody uses, and when ctx ends all of them, which it waits for.
func (s *Servers) Keep(ctx context.Context) error {
	tick := time.NewTicker(sweep)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.living.endIdle(awake.Now() - idle)
		case <-ctx.Done():
			s.living.close()
			return nil
		}
	}
}

func (v *living) endIdle(before time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.slots {
		if s.now != nil && s.now.calls == 0 && s.now.used < before {
			s.now.end()
		}
	}
}

func (v *living) close() {
	v.mu.Lock()
	v.closed = true
	for _, s := range v.slots {
		if s.now != nil {
			s.now.end()
		}
	}
	v.mu.Unlock()
	v.all.Wait()
}

// run has the owner wait for f; false: nothing begins any more.
func (v *living) run(f func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.all.Go(f)
	return true
}

// reach returns the server of a name, and whether it ran; else it was started. Whoever gets it calls rest after.
func (s *Servers) reach(ctx context.Context, name string) (l *live, ran bool, err error) {
	k, err := s.get(name)
	if err != nil {
		return nil, false, err
	}
	s.living.mu.Lock()
	sl := s.living.slots[name]
	if sl == nil {
		sl = &slot{lock: make(chan struct{}, 1)}
		s.living.slots[name] = sl
	}
	s.living.mu.Unlock()
	select {
	case sl.lock <- struct{}{}:
		defer func() { <-sl.lock }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	if l := s.living.take(sl); l != nil {
		return l, true, nil
	}
	if l, err = s.start(ctx, k.MCPAdded); err != nil {
		return nil, false, err
	}
	s.living.mu.Lock()
	defer s.living.mu.Unlock()
	if s.living.closed || s.living.slots[name] != sl { // asleep, or removed meanwhile
		l.end()
		return nil, false, fault.New("", fault.Unavailable, "", errAsleep)
	}
	l.calls, l.asking, sl.now = 1, 1, l
	return l, false, nil
}

// start connects to a server: in a box of its own, or at its address.
func (s *Servers) start(ctx context.Context, p contract.MCPAdded) (*live, error) {
	rules, err := rulesOf(p)
	if err != nil {
		return nil, fault.New("", fault.Invalid, "", err)
	}
	l := &live{over: make(chan struct{}), stderr: &lastWords{}}
	env, bearer := map[string]string{}, ""
	for _, g := range p.Secrets {
		if env[g.Variable], err = s.options.Secret(ctx, g.Secret); err != nil {
			return nil, err
		}
		l.secrets = append(l.secrets, secret{g.Secret, env[g.Variable]})
	}
	if p.Bearer != "" {
		if bearer, err = s.options.Secret(ctx, p.Bearer); err != nil {
			return nil, err
		}
		l.secrets = append(l.secrets, secret{p.Bearer, bearer})
	}
	l.life, l.end = context.WithCancel(s.options.Awake)
	id := "mcp-" + p.Server + "-" + contract.Nonce()
	spec := contract.EgressSpec{Profile: contract.EgressNone}
	if len(rules) > 0 {
		spec.Profile = contract.EgressCustom
		for _, r := range rules {
			spec.Allow = append(spec.Allow, r.String())
		}
	}
	way := s.options.Boxes.Way(l.life, egress.Scope{Box: id, Kind: contract.BoxScratch}, spec, nil, rules...)
	if p.URL != "" {
		err = s.startElsewhere(ctx, p, l, bearer, way)
	} else {
		box := sandbox.BoxSpec{ID: id, Kind: contract.BoxScratch, Limits: s.options.Boxes.Limits()}
		if len(rules) > 0 {
			box.Handler, box.Proxy = way, true
		}
		if p.Files {
			box.Mounts = append(box.Mounts, sandbox.Mount{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadOnly})
		}
		err = s.startInBox(ctx, p, l, box, env)
	}
	if err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// startInBox starts a program that speaks on its standard streams.
func (s *Servers) startInBox(ctx context.Context, p contract.MCPAdded, l *live, spec sandbox.BoxSpec, env map[string]string) error {
	home, err := s.options.Boxes.Home(ctx)
	if err != nil {
		return err
	}
	spec.Mounts = append(spec.Mounts, home)
	box, err := s.options.Boxes.Open(ctx, spec)
	if err != nil {
		return err
	}
	fromServer, toClient := io.Pipe()
	fromClient, toServer := io.Pipe()
	if !s.living.run(func() {
		defer close(l.over)
		defer l.end()
		exit, err := boxes.Client(box).Exec(l.life, guest.ExecRequest{Argv: p.Command, Env: env}, guest.Streams{Stdin: fromClient, Stdout: toClient, Stderr: l.stderr})
		if err == nil {
			err = fmt.Errorf("its program ended with code %d", exit.Code)
		}
		toClient.CloseWithError(err)
		fromClient.CloseWithError(err)
		if err := box.Kill(); err != nil {
			s.options.Logger.Error("could not end the box of an MCP server", "box", box.ID(), "error", err)
		}
	}) {
		return errors.Join(fault.New("", fault.Unavailable, "", errAsleep), box.Kill())
	}
	if l.Server, err = mcpclient.Connect(ctx, p.Server, s.options.Version, fromServer, toServer); err != nil {
		l.end()
		<-l.over
		return l.hide(err)
	}
	s.living.run(func() { l.Wait(); l.end() }) // else everything ends anyway
	return nil
}

// lastWords keeps the end of what a server writes beside its messages.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

const maxLastWords = 1 << 10

// Write implements io.Writer.
func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p[max(0, len(p)-maxLastWords):]...)
	w.text = w.text[max(0, len(w.text)-maxLastWords):]
	return len(p), nil
}

// String is what it wrote, on one line and without what a terminal would obey.
func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(w.text), ""))), " ")
}
