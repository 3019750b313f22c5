package control_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/view"
)

// TestAStatusIsOfOnesOwn shows that people are told how their own computers are and of no others, and
// how the machine is only if they may look after it.
func TestAStatusIsOfOnesOwn(t *testing.T) {
	w := open(t)
	ann, bob := w.person("Ann", grant.Machine), w.person("Bob")
	mine, yours := w.computer("Ann's", ann.ID), w.computer("Bob's", bob.ID)
	for _, x := range []struct {
		who     person
		sees    *machine
		machine bool
	}{{ann, mine, true}, {bob, yours, false}} {
		res := w.ask("GET", hostOf(w.console()), "/api/status", "", "Authorization: Bearer "+x.who.token)
		var s view.Status
		if err := json.Unmarshal([]byte(res.body), &s); res.StatusCode != http.StatusOK || err != nil {
			t.Fatalf("%s: %d, %v: %s", x.who.Name, res.StatusCode, err, res.body)
		}
		if len(s.Computers) != 1 || s.Computers[0].ID != x.sees.cid || len(s.Machine) > 0 != x.machine || !s.Well {
			t.Errorf("%s is told %+v", x.who.Name, s)
		}
	}
}
