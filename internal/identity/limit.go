package identity

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// SignInLimiter bounds how often sign-in may be tried. The secrets have 256 bits and can't
// be guessed; the limit keeps the tries from using up the machine.
type SignInLimiter struct {
	mu    sync.Mutex
	all   *rate.Limiter
	by    map[string]*rate.Limiter
	now   func() time.Time
	each  rate.Limit
	burst int
}

// maxAddresses bounds how many addresses are remembered; beyond it only the total is
// limited.
const maxAddresses = 10_000

// NewTries allows 10 tries at once and then one every 6 seconds per address,
// and ten times that in all.
func NewTries(now func() time.Time) *SignInLimiter {
	each := rate.Every(6 * time.Second)
	return &SignInLimiter{all: rate.NewLimiter(each*10, 100), by: map[string]*rate.Limiter{}, now: now, each: each, burst: 10}
}

// Allow counts one try from an address and reports whether it is allowed.
func (t *SignInLimiter) Allow(address string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	l := t.by[address]
	if l == nil {
		if len(t.by) >= maxAddresses {
			for a, old := range t.by {
				if old.TokensAt(now) >= float64(t.burst) {
					delete(t.by, a)
				}
			}
		}
		if len(t.by) >= maxAddresses {
			return t.all.AllowN(now, 1)
		}
		l = rate.NewLimiter(t.each, t.burst)
		t.by[address] = l
	}
	return l.AllowN(now, 1) && t.all.AllowN(now, 1)
}
