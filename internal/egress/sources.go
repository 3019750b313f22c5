package egress

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"choir.dev/choiros/contract"
)

// Sources makes policies from what the host knows. None of it comes from a workspace, where an
// agent could have written it.
type Sources struct {
	// Remotes returns the git remotes recorded on the host; nil means none.
	Remotes func(ctx context.Context) ([]string, error)
	// Registries returns the rules of package registries; nil means none. See
	// HostRegistries.
	Registries func(ctx context.Context) ([]Rule, error)
	// Extra are the rules of the configuration (egress.allow).
	Extra  []Rule
	Logger *slog.Logger
}

// Policy returns what a box under spec may reach. If the spec names its hosts, these are those of
// them that the computer was granted or a person approved. If a source fails, the policy denies
// everything and says why.
func (s *Sources) Policy(ctx context.Context, spec contract.EgressSpec, approved ...Rule) Policy {
	p := Policy{Profile: spec.Profile}
	if p.Err = spec.Validate(); p.Err != nil || spec.Profile == contract.EgressNone {
		return p
	}
	rules, err := s.granted(ctx)
	if err == nil && spec.Profile == contract.EgressCustom {
		rules, err = custom(spec.Allow, rules, approved)
	}
	if err != nil {
		p.Err = err
		return p
	}
	p.Rules = rules
	slices.SortFunc(p.Rules, func(a, b Rule) int { return compare(a.String(), b.String()) })
	p.Rules = slices.Compact(p.Rules)
	return p
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Cached keeps what find returned for ttl, and calls it only once at a time. An error is not kept.
func Cached(find func(ctx context.Context) ([]Rule, error), ttl time.Duration) func(ctx context.Context) ([]Rule, error) {
	c := &cache{find: find, ttl: ttl, lock: make(chan struct{}, 1)}
	return c.get
}

type cache struct {
	find  func(ctx context.Context) ([]Rule, error)
	ttl   time.Duration
	lock  chan struct{}
	mu    sync.Mutex
	rules []Rule
	until time.Time
}

func (c *cache) known() ([]Rule, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.rules), time.Now().Before(c.until)
}

func (c *cache) get(ctx context.Context) ([]Rule, error) {
	if rules, ok := c.known(); ok {
		return rules, nil
	}
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return nil, errors.Join(errors.New("waiting for the registries' configuration"), ctx.Err())
	}
	if rules, ok := c.known(); ok {
		return rules, nil
	}
	rules, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.rules, c.until = rules, time.Now().Add(c.ttl)
	c.mu.Unlock()
	return slices.Clone(rules), nil
}
