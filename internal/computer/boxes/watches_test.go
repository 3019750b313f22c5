package boxes

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// greedyKeeper has a tree for which it wants many watches, and takes as many as it is allowed.
type greedyKeeper struct {
	wants, has int
	all        *atomic.Int64
	most       int64
	over       *atomic.Bool
	breaks     bool // it takes them and then fails to answer
}

func (g *greedyKeeper) RoundTrip(r *http.Request) (*http.Response, error) {
	may, err := strconv.Atoi(r.Header.Get(wire.WatchesHeader))
	if err != nil {
		return nil, err
	}
	now := 0
	if may >= g.wants { // a keeper watches all or nothing
		now = g.wants
	}
	if g.all.Add(int64(now-g.has)) > g.most {
		g.over.Store(true)
	}
	g.has = now
	if g.breaks {
		return nil, errors.New("the box ended")
	}
	w := httptest.NewRecorder()
	w.Header().Set(wire.WatchesHeader, strconv.Itoa(now))
	return w.Result(), nil
}

// TestKeepersShareTheWatches shows that whatever the keepers of all computers ask for, at once or
// not, together they have no more than half of the watches that the kernel allows, and that watches
// that one returned, or had when it ended, go to others.
func TestKeepersShareTheWatches(t *testing.T) {
	w := watches{most: 1000}
	var all atomic.Int64
	var over atomic.Bool
	call := func(k *keeperWatches) {
		r := httptest.NewRequest(http.MethodPost, "http://keeper/keeper/checkpoint", nil)
		if resp, err := k.RoundTrip(r); err == nil {
			resp.Body.Close()
		}
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				g := &greedyKeeper{all: &all, most: 1000, over: &over, wants: rand.IntN(600)}
				k := w.keeper(g)
				for range 5 {
					call(k)
				}
				g.breaks = rand.IntN(2) == 0
				g.wants = rand.IntN(600)
				call(k)
				all.Add(-int64(g.has)) // it ends
				k.end()
			}
		})
	}
	wg.Wait()
	if over.Load() {
		t.Error("together they had more than there are for them")
	}
	if len(w.taken) > 0 {
		t.Errorf("of keepers that ended %d count still", len(w.taken))
	}
	small := &greedyKeeper{all: &all, most: 1000, over: &over, wants: 20}
	for range 8 {
		large := &greedyKeeper{all: &all, most: 1000, over: &over, wants: 450}
		k := w.keeper(large)
		call(k)
		t.Cleanup(k.end)
	}
	k := w.keeper(small)
	call(k)
	if small.has != 20 || all.Load() < 900 {
		t.Errorf("beside large trees a small one has %d watches, and all have %d", small.has, all.Load())
	}
	if n := k.ask(); n < 20 || n > 500 {
		t.Errorf("one may have %d", n)
	}
	if resp, err := w.keeper(http.NewFileTransport(http.Dir(t.TempDir()))).RoundTrip(httptest.NewRequest(http.MethodPost, "http://keeper/keeper/stream/read", nil)); err != nil || resp.Request.Header.Get(wire.WatchesHeader) != "" {
		t.Errorf("a stream, which scans nothing, takes some: %v", err)
	}
}
