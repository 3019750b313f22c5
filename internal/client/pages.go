package client

import "context"

// PageMost is how many items the API gives at once.
const PageMost = 500

// Every goes through a list that is given page by page, newest first, until
// there are limit items; limit 0 means all there are.
func Every[T any](ctx context.Context, limit int, sequence func(T) uint64, page func(ctx context.Context, before uint64, limit int) ([]T, bool, error)) ([]T, error) {
	all := []T{}
	for before := uint64(0); ; {
		n := PageMost
		if limit > 0 {
			n = min(n, limit-len(all))
		}
		part, more, err := page(ctx, before, n)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		if !more || len(part) == 0 || limit > 0 && len(all) >= limit {
			return all, nil
		}
		before = sequence(part[len(part)-1])
	}
}
