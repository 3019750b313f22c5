package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// interrupted is why a verb ended before it was done.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string {
	return fmt.Sprintf("ended by a signal (%s) before it was done", i.signal)
}

// signals are what the process is told to end by. They end the verb's context.
type signals struct {
	ch   chan os.Signal
	done chan struct{}
}

// listenToSignals returns a context that ends with the first signal, which is its
// cause.
func listenToSignals(ctx context.Context) (context.Context, *signals) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &signals{ch: make(chan os.Signal, 4), done: make(chan struct{})}
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer close(s.done)
		for sig := range s.ch {
			cancel(interrupted{sig.(syscall.Signal)})
		}
	}()
	return ctx, s
}

func (s *signals) close() {
	signal.Stop(s.ch)
	close(s.ch)
	<-s.done
}
