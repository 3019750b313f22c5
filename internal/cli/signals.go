package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupted is the cause when a signal ended a verb.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string {
	return fmt.Sprintf("ended by a signal (%s) before it was done", i.signal)
}

// signals are those that tell the process to end. They end the verb's context, unless the
// verb handles them itself.
type signals struct {
	ch   chan os.Signal
	done chan struct{}
	mu   sync.Mutex
	to   func(syscall.Signal) bool
}

type signalsKey struct{}

// listenToSignals returns a context that ends with the first signal, which is its
// cause.
func listenToSignals(ctx context.Context) (context.Context, *signals) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &signals{ch: make(chan os.Signal, 4), done: make(chan struct{})}
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM)
	// A terminal that is closed tells its programs so. Those that nohup started shall go on.
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(s.ch, syscall.SIGHUP)
	}
	go func() {
		defer close(s.done)
		for sig := range s.ch {
			number := sig.(syscall.Signal)
			s.mu.Lock()
			to := s.to
			s.mu.Unlock()
			if to == nil || !to(number) {
				cancel(interrupted{number})
			}
		}
	}()
	return context.WithValue(ctx, signalsKey{}, s), s
}

// TakeSignals passes signals, SIGQUIT too, to a function, which says whether it handled
// one, until the returned function is called.
func TakeSignals(ctx context.Context, to func(syscall.Signal) bool) (release func()) {
	s, ok := ctx.Value(signalsKey{}).(*signals)
	if !ok {
		return func() {}
	}
	set := func(to func(syscall.Signal) bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.to = to
	}
	set(to)
	signal.Notify(s.ch, syscall.SIGQUIT)
	return func() { set(nil) }
}

func (s *signals) close() {
	signal.Stop(s.ch)
	close(s.ch)
	<-s.done
}
