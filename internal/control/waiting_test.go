package control_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/view"
)

// TestTheInboxIsOfOnesOwnComputers shows that what waits is listed of the computers that the caller is a member of, each with
// its own, and of nobody else's.
func TestTheInboxIsOfOnesOwnComputers(t *testing.T) {
	w := open(t)
	effect := contract.NewID()
	mine := w.machine()
	mine.waits = []view.Waiting{{Computer: mine.cid, Name: "Studio", Kind: view.WaitsEffect, Prompt: "order a ladder", Effect: &view.Effect{ID: effect, Outcome: "unknown"}}}
	list := func(token string) (out []view.Waiting) {
		t.Helper()
		res := w.ask("GET", hostOf(w.console()), "/api/inbox", "", "Authorization: Bearer "+token)
		if err := json.Unmarshal([]byte(res.body), &out); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%d %v: %s", res.StatusCode, err, res.body)
		}
		return out
	}
	if got := list(w.token); len(got) != 1 || got[0].Effect == nil || got[0].Effect.ID != effect || got[0].Computer != mine.cid || got[0].Prompt != "order a ladder" {
		t.Errorf("the owner's inbox: %+v", got)
	}
	ada := w.person("Ada")
	if got := list(ada.token); len(got) != 0 {
		t.Errorf("who is no member is told %+v", got)
	}
	hers := w.computer("Attic", ada.ID)
	hers.waits = []view.Waiting{{Computer: hers.cid, Name: "Attic", Kind: view.WaitsReview, Prompt: "paint it", Review: &view.Review{Task: "t"}}}
	w.join(ada, mine.cid, grant.Viewer)
	if got := list(ada.token); len(got) != 2 || got[0].Computer != mine.cid || got[1].Review == nil {
		t.Errorf("of two computers she is told %+v", got)
	}
	if got := list(w.token); len(got) != 1 {
		t.Errorf("the owner is told what waits for another one: %+v", got)
	}
}
