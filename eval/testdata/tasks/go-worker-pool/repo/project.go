// Package pool runs jobs at the same time.
package pool

import "context"

// Run runs jobs, at most n at a time.
func Run(ctx context.Context, n int, jobs []func(context.Context) error) error {
	errs := make(chan error)
	slots := make(chan struct{}, n)
	for _, job := range jobs {
		slots <- struct{}{}
		go func() {
			errs <- job(ctx)
			<-slots
		}()
	}
	for range jobs {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}
