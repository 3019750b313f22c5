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
	keptFor  = 20 * time.Second // so long a terminal's box waits for its user's next command
	keptMost = 4                // users whose boxes wait in one computer
	keptPart = 8                // of the growth that its limits allow, one in so many; what others write counts too
)

// keptTerminals are terminals' boxes that wait for the next command of whoever ran
// the last one: nothing runs in them, and they are as fresh as they began. A box
// serves one command at a time and one user for ever.
type keptTerminals struct {
	mu sync.Mutex
	by map[string]*Terminal // by user
}

// Terminal is a box on the live tree.
type Terminal struct {
	sandbox.Box
	user   string
	mounts []sandbox.Mount // with which it was opened
	policy egress.Policy   // what it may reach, from its beginning to its end
	taken  chan struct{}   // closed when it is taken out again
}

// take returns the box that waits for a user, if it is what would be opened now.
func (k *keptTerminals) take(user string, mounts []sandbox.Mount, policy egress.Policy) *Terminal {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.by[user]
	if t == nil || !reflect.DeepEqual(t.mounts, mounts) || policy.Err != nil || !reflect.DeepEqual(t.policy, policy) {
		return nil // an older one is ended when its time has come
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

// give lets a box wait for its user, and returns what is closed when it is taken; nil
// where one waits already, or too many do.
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

// drop takes a box out that nobody took.
func (k *keptTerminals) drop(t *Terminal) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by[t.user] != t {
		return false
	}
	delete(k.by, t.user)
	return true
}

// Terminal returns a box on the live tree, and with further mounts, with the default
// network policy: the one that waits for the user, or a new one.
func (c *Boxes) Terminal(ctx context.Context, id, user string, more []sandbox.Mount) (*Terminal, error) {
	home, err := c.Home(ctx)
	if err != nil {
		return nil, err
	}
	mounts := []sandbox.Mount{{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}, Git()}
	mounts = append(append(mounts, more...), home)
	// Not the command's context, which the box may outlive.
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

// roomy reports whether most of what a box may write is left to the next command.
func (c *Boxes) roomy(ctx context.Context, t *Terminal) bool {
	u, err := t.Usage(ctx)
	most := c.Limits()
	return err == nil && (most.DiskBytes <= 0 || u.DiskBytes < most.DiskBytes/keptPart) && (most.DiskInodes <= 0 || u.DiskInodes < most.DiskInodes/keptPart)
}

// Clear ends what a command has left in its box. When it returns, nothing of it runs
// any more; the box itself is ended beside that, or waits for the user's next command.
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

// endTerminal ends a box in which nothing runs, beside whatever else goes on.
func (c *Boxes) endTerminal(t *Terminal) {
	c.options.Once("the end of a terminal's box", func(context.Context) error {
		err := t.Kill()
		if fault.Is(err, fault.Timeout) {
			<-t.Done() // on a slow disk
			return nil
		}
		if err != nil {
			err = errors.Join(errors.New("a terminal's box could not be ended"), err)
		}
		return err
	})
}

// End ends a box and waits until it is gone, for as long as ctx lasts: what is in it
// may be waiting for a slow disk, and a command whose box is there has not ended.
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
