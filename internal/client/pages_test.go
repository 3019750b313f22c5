package client_test

import (
	"context"
	"slices"
	"testing"

	"choir.dev/choiros/internal/client"
)

// However long a list is, every item is returned once, and no more pages are requested than
// needed.
func TestEveryPageOfAList(t *testing.T) {
	const there = 2*client.PageMost + 17
	for _, limit := range []int{0, 1, client.PageMost, client.PageMost + 1, there, there + 5} {
		var asked []int
		got, err := client.Every(t.Context(), limit, func(n uint64) uint64 { return n }, func(_ context.Context, before uint64, n int) ([]uint64, bool, error) {
			asked = append(asked, n)
			if before == 0 {
				before = there + 1
			}
			var page []uint64
			for seq := before - 1; seq > 0 && len(page) < n; seq-- {
				page = append(page, seq)
			}
			return page, len(page) == n, nil
		})
		want := there
		if limit > 0 {
			want = min(limit, there)
		}
		if err != nil || len(got) != want || got[0] != there || got[len(got)-1] != uint64(there-want+1) {
			t.Errorf("limit %d: %d items, %v", limit, len(got), err)
		}
		if slices.Max(asked) > client.PageMost {
			t.Errorf("limit %d: pages of %d were asked for", limit, asked)
		}
	}
}
