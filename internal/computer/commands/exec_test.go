package commands

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
)

// livingBox is a box that has not ended and counts how often it was killed.
type livingBox struct {
	sandbox.Box
	kills int
}

func (*livingBox) Done() <-chan struct{} { return nil }
func (*livingBox) Err() error            { return nil }
func (b *livingBox) Kill() error         { b.kills++; return nil }

// TestWhatTheGuestRefusesIsNotWaitedFor shows that a command that can't be started fails at once,
// without waiting for its box to end.
func TestWhatTheGuestRefusesIsNotWaitedFor(t *testing.T) {
	for _, x := range []struct {
		code fault.Code
		exit int
	}{{fault.NotFound, 127}, {fault.Denied, 126}, {fault.Invalid, -1}} {
		synctest.Test(t, func(t *testing.T) {
			b, begin := &livingBox{}, time.Now()
			got := New(Options{}).outcome(t.Context(), "id", b, guest.Exit{}, fault.New("guest.Exec", x.code, "", errors.New("refused")), begin)
			if waited := time.Since(begin); got.ExitCode != x.exit || got.Reason == "" || waited != 0 || b.kills != 0 {
				t.Errorf("%s: %+v, waited %s, killed %d times", x.code, got, waited, b.kills)
			}
		})
	}
}

// lingeringBox was ended for what it used up, and the kernel has not freed that yet.
type lingeringBox struct{ livingBox }

func (*lingeringBox) Kill() error {
	ended := &sandbox.EndedError{Box: "b", Reason: sandbox.Shared, Detail: "it used up the epoll watches"}
	return fault.New("", fault.Timeout, "", fmt.Errorf("still not gone: %w", ended))
}

// TestWhyABoxEndsIsToldBeforeItIsGone shows that whoever ran a command learns for what its box was
// ended, also while the kernel takes long to free what it held.
func TestWhyABoxEndsIsToldBeforeItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := fault.New("", fault.Unavailable, "", errors.New("the box ended before the command"))
		got := New(Options{}).outcome(t.Context(), "id", &lingeringBox{}, guest.Exit{}, broken, time.Now())
		if got.ExitCode != 137 || got.Reason != "shared: it used up the epoll watches" {
			t.Errorf("%+v", got)
		}
	})
}
