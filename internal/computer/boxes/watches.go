package boxes

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// watches is how many of the kernel's watches (inotify) the keepers of all computers may
// have together: the kernel counts them for the user that runs choir, whose other programs need
// some, as those in boxes do. Each call of a keeper says how many it may have by then, and the answer
// how many it has. What a call was allowed counts as taken until it is answered.
type watches struct {
	mu    sync.Mutex
	most  int // of all; 0 before anybody has asked the kernel
	calls int // under way, of all
	taken map[*keeperWatches]int
}

// Of what the kernel allows the user, one keeper has at most a quarter and all of them half.
const (
	watchesOfOne = 2 // of what all may have
	watchesOfAll = 2
	// mostWatches bounds what one may have where the kernel allows very many: each takes memory.
	mostWatches = 200_000
	// unknownWatches is what the kernel allows where it does not say.
	unknownWatches = 8192
)

// keeperWatches are those of one keeper.
type keeperWatches struct {
	of    *watches
	next  http.RoundTripper
	calls int // under way
	told  int // the most that was told since there was none under way
	ended bool
}

// keeper counts the watches of a keeper that next leads to, until it has ended.
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

// allowedWatches is how many the kernel allows the user.
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
		return k.next.RoundTrip(r) // which looks at nothing
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

// ask takes what the keeper may have by then: what it has, or what the others leave, of
// which there stays some for whoever asks while this is under way.
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

// answer gives back what was not taken, once no call is under way; n is how many the
// keeper has, negative when it did not say, and what it may have then counts until it does.
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

// end says that the keeper has ended, and so has no watch.
func (k *keeperWatches) end() {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.ended = true
	delete(k.of.taken, k)
}
