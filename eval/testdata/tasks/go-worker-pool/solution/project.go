// Package pool runs jobs at the same time.
package pool

import (
	"context"
	"sync"
)

// Run runs jobs, at most n at a time, and waits for those it began. After the first error, and once
// ctx has ended, it begins no more.
func Run(ctx context.Context, n int, jobs []func(context.Context) error) error {
	var (
		all   sync.WaitGroup
		once  sync.Once
		first error
	)
	inner, stop := context.WithCancel(ctx)
	defer stop()
	slots := make(chan struct{}, max(n, 1))
	for _, job := range jobs {
		select {
		case slots <- struct{}{}:
		case <-inner.Done():
		}
		if inner.Err() != nil {
			break
		}
		all.Add(1)
		go func() {
			defer all.Done()
			if err := job(inner); err != nil {
				once.Do(func() { first = err })
				stop()
			}
			<-slots
		}()
	}
	all.Wait()
	if first != nil {
		return first
	}
	return ctx.Err()
}
