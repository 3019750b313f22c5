package boxes

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// watches divides the inotify watches among the keepers of all computers: the kernel counts
// them for the user that runs choir, whose other programs and boxes need some as well. Each
// call of a keeper tells it how many it may have, and the answer says how many it has. What
// a call was allowed counts as taken until it is answered.
type watches struct {
	mu    sync.Mutex
	most  int // of all keepers; 0 before the kernel was asked
	calls int // calls under way, of all keepers
	taken map[*keeperWatches]int
}

// Of the watches that the kernel allows the user, all keepers together have at most half
// and one keeper at most a quarter.
const (
	watchesOfOne = 2 // one keeper has at most this part of what all may have
	watchesOfAll = 2
	// mostWatches limits one keeper where the kernel allows very many, since each watch
	// takes memory.
	mostWatches = 200_000
	// unknownWatches is assumed if the kernel's limit can't be read.
	unknownWatches = 8192
)

// keeperWatches counts the watches of one keeper.
type keeperWatches struct {
	of    *watches
	next  http.RoundTripper
	calls int // calls under way
	told  int // the highest number that was reported since no call was under way
	ended bool
}

// keeper counts the watches of the keeper that next leads to, until it has ended.
func (w *watches) keeper(next http.RoundTripper) *keeperWatches {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.most == 0 {
		w.most = allowedWatches() / watchesOfAll
	}
	if w.taken == nil {
		w.taken = map[*keeperWatches]int{}
	}
	return &keeperWatches{of: w, next: next}
}

// allowedWatches is how many watches the kernel allows the user.
func allowedWatches() int {
	raw, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	n, perr := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || perr != nil || n <= 0 {
		return unknownWatches
	}
	return n
}

// RoundTrip implements http.RoundTripper.
func (k *keeperWatches) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/keeper/stream/") {
		return k.next.RoundTrip(r) // this call does not scan the tree
	}
	r = r.Clone(r.Context())
	r.Header.Set(wire.WatchesHeader, strconv.Itoa(k.ask()))
	resp, err := k.next.RoundTrip(r)
	told := -1
	if err == nil {
		if n, err := strconv.Atoi(resp.Header.Get(wire.WatchesHeader)); err == nil {
			told = n
		}
	}
	k.answer(told)
	return resp, err
}

// ask reserves the watches that the keeper may have after this call, and returns their
// number: what it has, or what the others leave. If other keepers have calls under way,
// half of the rest is left for them.
func (k *keeperWatches) ask() int {
	w := k.of
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.most
	for other, n := range w.taken {
		if other != k {
			left -= n
		}
	}
	if w.calls > k.calls {
		left /= 2
	}
	if k.calls == 0 {
		k.told = -1
	}
	k.calls, w.calls = k.calls+1, w.calls+1
	if k.ended {
		return 0
	}
	w.taken[k] = max(w.taken[k], min(left, w.most/watchesOfOne, mostWatches))
	return w.taken[k]
}

// answer releases what was reserved and not taken, once no call is under way. n is how many
// watches the keeper has, negative if it did not say; then the reservation stays until it
// does.
func (k *keeperWatches) answer(n int) {
	w := k.of
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls--
	if k.calls--; k.ended {
		return
	}
	k.told = max(k.told, n)
	if k.calls == 0 && k.told >= 0 {
		w.taken[k] = min(w.taken[k], k.told)
	}
}

// end records that the keeper has ended, and so has no watch.
func (k *keeperWatches) end() {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.ended = true
	delete(k.of.taken, k)
}
