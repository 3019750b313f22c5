package ledger_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/test/choirtest"
)

// What the server plainly refuses to store, here because it is too long for the stream, fails its own
// call, not those whose events were to be stored with it.
func TestARefusalIsOfItsOwnCall(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	held, release := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(held); <-release })
	armed := make(chan struct{})
	l := openLog(t, b, ledger.Options{CID: cid}.AtStep(func(point string) {
		select {
		case <-armed:
			if point == "stamped" {
				hold()
			}
		default:
		}
	}))
	mustAppend(t, l, prompt("before"))
	config := bus.StreamConfig(cid, 1)
	config.MaxMsgSize = 12 << 10
	if _, err := b.JetStream().UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	close(armed)
	var wg sync.WaitGroup
	wg.Go(func() { mustAppend(t, l, prompt("the one that others wait for")) })
	<-held
	const calls, long = 7, 3
	errs := make([]error, calls)
	for i := range errs {
		text := fmt.Sprint("short ", i)
		if i == long {
			text = strings.Repeat("long ", 3000)
		}
		wg.Go(func() { _, errs[i] = l.Append(context.WithoutCancel(t.Context()), prompt(text)) })
	}
	choirtest.Eventually(t, time.Minute, "all wait, one of them taken out already", func() bool { return l.Queued() == calls-1 })
	close(release)
	wg.Wait()
	for i, err := range errs {
		if (err != nil) != (i == long) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := errs[long]; !fault.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "unknown") {
		t.Errorf("the long one: %v", err)
	}
	if n := len(wholeLog(t, l)); n != calls+1 {
		t.Errorf("the log holds %d events; want %d", n, calls+1)
	}
}
