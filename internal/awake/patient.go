package awake

import (
	"context"
	"time"
)

type patient struct{}

// Patient is a context whose waits outlast what has stopped and is tried again, such as the projection of the state, each
// by at most so much: what works for long, such as a run, is not to fail because that stood still for a moment.
func Patient(ctx context.Context, most time.Duration) context.Context {
	return context.WithValue(ctx, patient{}, most)
}

// PatienceOf returns a channel that is closed when a wait with ctx is not to outlast what has stopped any longer: at once,
// unless the context is Patient.
func PatienceOf(ctx context.Context) (over <-chan struct{}, stop func()) {
	done := make(chan struct{})
	most, _ := ctx.Value(patient{}).(time.Duration)
	if most <= 0 {
		close(done)
		return done, func() {}
	}
	timer := AfterFunc(most, func() { close(done) })
	return done, func() { timer.Stop() }
}
