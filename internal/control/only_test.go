package control_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestTheOneComputerIsFoundWithoutLookingAtAny shows that a request that names no computer costs
// the same however many there are, and that a computer without an owner belongs to the machine's
// owner from the first request on.
func TestTheOneComputerIsFoundWithoutLookingAtAny(t *testing.T) {
	w := open(t)
	bearer := "Authorization: Bearer " + w.token
	ask := func(status int, says string) {
		t.Helper()
		if res := w.ask("GET", hostOf(w.console()), "/api/computers/-/runs", "", bearer); res.StatusCode != status || !strings.Contains(res.body, says) {
			t.Fatalf("%d %s; want %d", res.StatusCode, res.body, status)
		}
	}
	ask(http.StatusOK, "")
	looks := func() int {
		w.computers.mu.Lock()
		defer w.computers.mu.Unlock()
		return w.computers.looks
	}
	before := looks()
	ask(http.StatusOK, "")
	if got := looks(); got != before {
		t.Errorf("all computers were looked at %d times more", got-before)
	}
	w.computers.mu.Lock()
	w.computers.list = append(w.computers.list, newMachine("Other"))
	w.computers.mu.Unlock()
	ask(http.StatusUnprocessableEntity, "Name one")
	ask(http.StatusUnprocessableEntity, "Name one")
}
