package gateway_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/choirtest"
)

// TestNothingIsWrittenBehindAPanic: what tells a loop that its call goes on ends with the call.
func TestNothingIsWrittenBehindAPanic(t *testing.T) {
	g := build(t, gateway.Options{Keys: func(context.Context, string) (string, error) { panic("of this test") }})
	func() {
		defer func() { _ = recover() }()
		g.Handler(scope()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/model/turns", strings.NewReader(`{"messages":[{"role":"user","parts":[{"text":"x"}]}]}`)))
		t.Error("nothing panicked")
	}()
	choirtest.Eventually(t, 5*time.Second, "nothing of the call is left", func() bool {
		all := make([]byte, 1<<20)
		return !strings.Contains(string(all[:runtime.Stack(all, true)]), "keepAlive")
	})
}

// TestTheFormOfAnAnswerIsReckonedWith: it is sent, so it is part of what a call may cost.
func TestTheFormOfAnAnswerIsReckonedWith(t *testing.T) {
	plain := say("x")
	formed := plain
	formed.Output = form(200 << 10)
	if a, b := gateway.EstimateTokens(plain), gateway.EstimateTokens(formed); b-a < 200<<10/3 {
		t.Errorf("a form of %d bytes is reckoned as %d tokens", len(formed.Output.Schema), b-a)
	}
}

func form(size int) *contract.Output {
	return &contract.Output{Name: "x", Schema: json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", size) + `"}`)}
}
