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

// A claim is stored only behind the newest event. An owner that writes without a pause
// always has the next event under way, and writes as fast as the claimer reads, so the
// claimer might never reach the end. So a claimer that finds others' events announces its
// claim, and owners of earlier epochs pause. Nothing depends on the announcement being
// received: what is stored decides who owns the log.
const (
	yieldFor    = time.Second // how long an owner waits for the claim
	yieldLook   = 2 * time.Millisecond
	noticeEvery = 16 // events that a claimer reads between announcements
)

// claimNotice is what a Log that is about to claim the log sends to those that own it now.
type claimNotice struct {
	Epoch uint64 `json:"epoch"`
}

// announceClaim tells earlier owners that this Log wants to claim the log.
func (l *Log) announceClaim() error {
	b, err := json.Marshal(claimNotice{Epoch: l.epoch})
	if err != nil {
		return err
	}
	if err := l.conn.Publish(contract.SubjectFence(l.cid), b); err != nil {
		return fmt.Errorf("say that the log is wanted: %w", err)
	}
	return nil
}

// heardClaim handles the announcement of a claim.
func (l *Log) heardClaim(m *nats.Msg) {
	var w claimNotice
	if len(m.Data) > 256 || json.Unmarshal(m.Data, &w) != nil || w.Epoch <= l.epoch {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.yield = time.Now().Add(yieldFor)
}

// yielding says whether a claim of a later epoch is still waited for.
func (l *Log) yielding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.yield)
}

// giveWay waits until the announced claim is stored, and then fails with ErrFenced,
// or until it has waited for yieldFor.
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
