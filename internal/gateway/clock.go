package gateway

import (
	"time"

	"choir.dev/choiros/internal/awake"
)

// Clock is what calls that wait for a model measure time by.
type Clock interface {
	// Now is the time since some moment.
	Now() time.Duration
	// After returns a channel that is closed once d has passed, unless stop is called before.
	After(d time.Duration) (over <-chan struct{}, stop func())
}

// running is the time in which this process runs.
type running struct{}

// Now implements Clock.
func (running) Now() time.Duration { return awake.Now() }

// After implements Clock.
func (running) After(d time.Duration) (<-chan struct{}, func()) {
	over := make(chan struct{})
	timer := awake.AfterFunc(d, func() { close(over) })
	return over, func() { timer.Stop() }
}
