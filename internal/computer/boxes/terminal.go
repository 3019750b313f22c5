package boxes

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

const (
	keptFor  = 20 * time.Second // how long a terminal's box waits for its user's next command
	keptMost = 4                // for how many users of one computer boxes wait
	keptPart = 8                // the fraction of the box's growth limit up to which it is kept; what others write counts too
)

// keptTerminals are boxes of terminals that wait for the next command of the user who ran
// the last one: nothing runs in them, and they are as they were when they began. A box
// serves one command at a time, and only ever one user.
type keptTerminals struct {
	mu sync.Mutex
	by map[string]*Terminal // by user
}

// Terminal is a box on the live tree.
type Terminal struct {
	sandbox.Box
	user   string
	mounts []sandbox.Mount // those with which it was opened
	policy egress.Policy   // what it may reach, for its whole life
	taken  chan struct{}   // closed when it is taken for a command
}

// take returns the box that waits for a user, if it is like the one that would be opened
// now.
func (k *keptTerminals) take(user string, mounts []sandbox.Mount, policy egress.Policy) *Terminal {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.by[user]
	if t == nil || !reflect.DeepEqual(t.mounts, mounts) || policy.Err != nil || !reflect.DeepEqual(t.policy, policy) {
		return nil // an older one is ended when its time is over
	}
	delete(k.by, user)
	close(t.taken)
	select {
	case <-t.Done():
		return nil
	default:
		return t
	}
}

// give makes a box wait for its user, and returns a channel that is closed when it is
// taken; nil if one waits already, or too many do.
func (k *keptTerminals) give(t *Terminal) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by[t.user] != nil || len(k.by) >= keptMost {
		return nil
	}
	if k.by == nil {
		k.by = map[string]*Terminal{}
	}
	t.taken = make(chan struct{})
	k.by[t.user] = t
	return t.taken
}

// drop removes a box that nobody took.
func (k *keptTerminals) drop(t *Terminal) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by[t.user] != t {
		return false
	}
	delete(k.by, t.user)
	return true
}

// Terminal returns a box on the live tree, with further mounts and the default network
// policy: the one that waits for the user, or a new one.
func (c *Boxes) Terminal(ctx context.Context, id, user string, more []sandbox.Mount) (*Terminal, error) {
	home, err := c.Home(ctx)
	if err != nil {
		return nil, err
	}
	mounts := []sandbox.Mount{{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}, Git()}
	mounts = append(append(mounts, more...), home)
	// This is not the command's context, which the box may outlive.
	policy := c.policy(c.options.Awake, contract.EgressSpec{Profile: contract.EgressDefault})
	if t := c.kept.take(user, mounts, policy); t != nil {
		c.writers.work(t.ID())
		if c.roomy(ctx, t) {
			return t, nil
		}
		c.endTerminal(t)
	}
	limits := c.Limits()
	limits.Counted = []sandbox.Volume{sandbox.Live("")}
	handler := c.way(egress.Scope{Box: id, Kind: contract.BoxTerminal}, policy)
	b, err := c.Open(ctx, sandbox.BoxSpec{ID: id, Kind: contract.BoxTerminal, Root: "/computer", Mounts: mounts, Handler: handler, Proxy: true, Limits: limits})
	if err != nil {
		return nil, err
	}
	return &Terminal{Box: b, user: user, mounts: mounts, policy: policy}, nil
}

// roomy reports whether most of what a box may write is left for the next command.
func (c *Boxes) roomy(ctx context.Context, t *Terminal) bool {
	u, err := t.Usage(ctx)
	most := c.Limits()
	return err == nil && (most.DiskBytes <= 0 || u.DiskBytes < most.DiskBytes/keptPart) && (most.DiskInodes <= 0 || u.DiskInodes < most.DiskInodes/keptPart)
}

// Clear ends what a command has left running in its box. When it returns, nothing of it
// runs any more; the box is then ended in the background, or waits for the user's next
// command.
func (c *Boxes) Clear(ctx context.Context, t *Terminal) error {
	cleared, err := Client(t).Clear(ctx)
	if err != nil {
		return End(ctx, t) // it may hang, or have ended by itself
	}
	c.writers.rest(t.ID())
	var taken <-chan struct{}
	if cleared.Fresh && c.roomy(ctx, t) {
		taken = c.kept.give(t)
	}
	if taken == nil {
		c.endTerminal(t)
		return nil
	}
	c.options.Once("a terminal's box that is kept", func(ctx context.Context) error {
		timer := time.NewTimer(keptFor)
		defer timer.Stop()
		select {
		case <-taken:
			return nil
		case <-timer.C:
		case <-t.Done():
		case <-ctx.Done():
		}
		if !c.kept.drop(t) {
			return nil
		}
		return t.Kill()
	})
	return nil
}

// endTerminal ends a box in which nothing runs, in the background.
func (c *Boxes) endTerminal(t *Terminal) {
	c.options.Once("the end of a terminal's box", func(context.Context) error {
		err := t.Kill()
		if fault.Is(err, fault.Timeout) {
			<-t.Done() // this takes a while on a slow disk
			return nil
		}
		if err != nil {
			err = errors.Join(errors.New("a terminal's box could not be ended"), err)
		}
		return err
	})
}

// End ends a box and waits until it is gone, as long as ctx lasts: its processes may be
// waiting for a slow disk, and a command whose box exists has not ended.
func End(ctx context.Context, b *Terminal) error {
	for {
		err := b.Kill()
		if !fault.Is(err, fault.Timeout) || ctx.Err() != nil {
			return err
		}
		select {
		case <-b.Done():
		case <-ctx.Done():
		}
	}
}
