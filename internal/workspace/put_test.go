package workspace_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/workspace"
)

// TestASlowPutKeepsNobodyWaiting has a client send a file and stop in the middle. Everything else
// that changes files is done meanwhile; then it goes on, and the file is there, or it leaves.
func TestASlowPutKeepsNobodyWaiting(t *testing.T) {
	h := newHost(t)
	half := strings.Repeat("x", 1<<20)
	for what, leaves := range map[string]error{"goes on": nil, "leaves": errors.New("it left")} {
		t.Run(what, func(t *testing.T) {
			body, send := io.Pipe()
			done := make(chan error, 1)
			go func() {
				_, err := h.Write(t.Context(), "workspace/slow-"+what, body, workspace.WriteOptions{})
				done <- errors.Join(err, body.Close())
			}()
			if _, err := io.WriteString(send, half); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // otherwise it would wait for the slow one
			defer cancel()
			if _, err := h.Write(ctx, "workspace/other", strings.NewReader(what), workspace.WriteOptions{}); err != nil || h.live("workspace/other") != what {
				t.Errorf("another put: %v", err)
			}
			if _, err := h.Remove(ctx, "workspace/other", "", contract.Person("")); err != nil {
				t.Errorf("a removal: %v", err)
			}
			if leaves == nil {
				_, leaves := io.WriteString(send, half)
				if err := errors.Join(leaves, send.Close(), <-done); err != nil || h.live("workspace/slow-"+what) != half+half {
					t.Errorf("the slow one: %v", err)
				}
				return
			}
			if err := send.CloseWithError(leaves); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, leaves) {
				t.Errorf("one that left: %v", err)
			}
			if _, err := h.Remove(t.Context(), "workspace/slow-"+what, "", contract.Person("")); err == nil {
				t.Error("half of a file was put")
			}
		})
	}
}
