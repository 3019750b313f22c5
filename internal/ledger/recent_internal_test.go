package ledger

import (
	"testing"

	"choir.dev/choiros/contract"
)

// TestRecentWaitsForFollowers: the newest events stay in memory until who follows the log has them, up to a bound, and no longer; one who is
// further behind anyway keeps nothing there.
func TestRecentWaitsForFollowers(t *testing.T) {
	t.Parallel()
	r := recent{followers: map[*follower]struct{}{}}
	next := uint64(0)
	push := func(n, size int) {
		for range n {
			next++
			r.push(stored{event: contract.Event{Sequence: next}, size: size})
		}
	}
	has := func(after uint64) bool {
		_, ok := r.after(after, 1)
		return ok
	}
	push(3*recentCount, 100)
	if has(recentCount) || !has(next-recentCount) {
		t.Fatalf("without followers it begins at %d of %d", r.first(), next)
	}
	slow, gone := &follower{at: next - 100}, &follower{at: 1}
	r.followers[slow], r.followers[gone] = struct{}{}, struct{}{}
	push(4*recentCount, 100)
	if !has(slow.at) || has(slow.at-1) {
		t.Errorf("with a follower at %d of %d it begins at %d", slow.at, next, r.first())
	}
	slow.at = next
	push(1, 100)
	if len(r.list) != recentCount || r.bytes != recentCount*100 {
		t.Errorf("once it has all, %d events are kept, of %d bytes", len(r.list), r.bytes)
	}
	push(mostRecentCount-1, 100)
	if !has(slow.at) {
		t.Errorf("for one that is %d events behind it begins at %d of %d", next-slow.at, r.first(), next)
	}
	push(2, 100)
	if has(slow.at) || len(r.list) != recentCount {
		t.Errorf("one that is further behind asks the server, and %d events are kept", len(r.list))
	}
	slow.at = next
	push(mostRecentBytes/100_000-1, 100_000)
	if !has(slow.at) {
		t.Errorf("for one that is %d bytes behind it begins at %d of %d", r.bytes, r.first(), next)
	}
	push(3, 100_000)
	if has(slow.at) || r.bytes > recentBytes {
		t.Errorf("one that is further behind asks the server, and %d bytes are kept", r.bytes)
	}
}
