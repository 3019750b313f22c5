package inward_test

import (
	"net/http"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// TestCallsThatFailAreNotMadeWithoutEnd: each call that a service refuses costs nothing and is recorded, so a program
// that makes them in a loop would fill the log.
func TestCallsThatFailAreNotMadeWithoutEnd(t *testing.T) {
	p := &played{}
	p.fails(&contract.TurnError{Code: provider.CodeInvalid, Message: "no"})
	url := serve(t, p, nil)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		if status, _, _ := post(t, url+"/v1/messages", paths["/v1/messages"]); status != http.StatusBadRequest {
			t.Fatal(status)
		}
	}
	if n := len(p.requests); n > 40 {
		t.Errorf("%d calls were made in three seconds", n)
	}
}
