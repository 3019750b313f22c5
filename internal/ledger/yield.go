package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
)

// A claim is stored only behind the newest event. An owner that writes without
// a pause always has the next one under way, and writes as fast as the claimer
// reads: it might never get to the end. So a claimer that finds others' events
// says that it wants in, and owners of earlier epochs hold their breath. Nothing
// depends on its being heard: who owns the log is decided by what is stored.
const (
	yieldFor  = time.Second // how long an owner waits for the claim
	yieldLook = 2 * time.Millisecond
	wishEvery = 16 // events that a claimer reads between saying so
)

// claimNotice is what a Log that is about to claim the log sends to those that own it now.
type claimNotice struct {
	Epoch uint64 `json:"epoch"`
}

// wishIn tells older owners that this Log wants to claim.
func (l *Log) wishIn() error {
	b, err := json.Marshal(claimNotice{Epoch: l.epoch})
	if err != nil {
		return err
	}
	if err := l.conn.Publish(contract.SubjectFence(l.cid), b); err != nil {
		return fmt.Errorf("say that the log is wanted: %w", err)
	}
	return nil
}

// wished hears a claimer.
func (l *Log) wished(m *nats.Msg) {
	var w claimNotice
	if len(m.Data) > 256 || json.Unmarshal(m.Data, &w) != nil || w.Epoch <= l.epoch {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.yield = time.Now().Add(yieldFor)
}

// yielding says until when a claim of a later epoch is waited for.
func (l *Log) yielding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.yield)
}

// giveWay waits until the claim that was heard of is stored, and then fails
// with ErrFenced, or until it has been waited for long enough.
func (l *Log) giveWay(ctx context.Context) error {
	for l.yielding() {
		if _, err := l.refresh(ctx); err != nil {
			return err
		}
		if !awake.Pause(ctx, yieldLook) {
			return ctx.Err()
		}
	}
	return nil
}
