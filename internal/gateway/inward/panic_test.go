package inward_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
)

// TestNothingIsWrittenBehindAPanic: what says that a stream goes on would write to a connection that is gone, in
// a goroutine whose panic is everybody's.
func TestNothingIsWrittenBehindAPanic(t *testing.T) {
	p := &played{turn: func(context.Context, contract.TurnRequest, func(string)) (contract.Turn, error) {
		panic("of this test")
	}}
	url := serve(t, p, nil)
	_, _ = wires[0].ask(t.Context(), url, true)
	choirtest.Eventually(t, 5*time.Second, "nothing of the call is left", func() bool {
		all := make([]byte, 1<<20)
		return !strings.Contains(string(all[:runtime.Stack(all, true)]), "keepAlive")
	})
}
