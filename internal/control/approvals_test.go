package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"choir.dev/choiros/contract"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/view"
)

// waiting is the one approval of a machine in memory.
var waiting = view.Approval{ID: contract.NewID(), Kind: contract.ApprovalEgress, Run: contract.NewID(), Prompt: "fetch it", Host: "a.example", Port: 443,
	Digest: strings.Repeat("7", 64), Claim: "I need it", Sequence: 3}

func (m *machine) Approvals(_ context.Context, all bool, before uint64, limit int) ([]view.Approval, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := waiting
	if len(m.decided) > 0 {
		a.Answer = m.decided[0].Answer
	}
	if a.Answer != "" && !all || before > 0 && before <= a.Sequence {
		return nil, false, nil
	}
	return []view.Approval{a}, limit == 1, nil
}

func (m *machine) Decide(_ context.Context, user, id string, d view.Decision) (view.Acted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case id != waiting.ID:
		return view.Acted{}, fault.New("machine.Decide", fault.NotFound, "", errors.New("no such approval"))
	case d.Digest != waiting.Digest || len(m.decided) > 0:
		return view.Acted{}, fault.New("machine.Decide", fault.Conflict, "", errors.New("answered, or another act"))
	}
	m.decided = append(m.decided, d)
	return view.Acted{Run: waiting.Run, Sequence: 9}, nil
}

func (w *world) answers() int {
	m := w.machine()
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.decided)
}

// TestOnlyTheConsoleAnswersApprovals shows that approvals can be answered neither by a desktop, in
// any way, nor with a token that was handed out, nor in a session that such a token makes.
func TestOnlyTheConsoleAnswersApprovals(t *testing.T) {
	w := open(t)
	cookie := w.signIn()
	desktop, desktopCookie := w.enter(cookie)
	_, token, err := w.ids.NewToken(context.Background(), w.owner.ID, "ci", identity.TokenScope{})
	if err != nil {
		t.Fatal(err)
	}
	target := "/api/computers/-/approvals/" + waiting.ID
	body := fmt.Sprintf(`{"digest":%q,"answer":"run"}`, waiting.Digest)
	const form = "Content-Type: application/json"
	for name, c := range map[string]struct {
		host    string
		target  string
		headers []string
	}{
		"a desktop's page at its own origin":  {hostOf(desktop), target, append(fetched(desktop), desktopCookie)},
		"a desktop's page at the console":     {hostOf(w.console()), target, []string{"Origin: " + desktop, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty", cookie}},
		"a desktop's session at the console":  {hostOf(w.console()), target, append(fetched(w.console()), desktopCookie)},
		"nobody":                              {hostOf(w.console()), target, fetched(w.console())},
		"a token that was handed out":         {hostOf(w.console()), target, []string{"Authorization: Bearer " + token}},
		"a link made with such a token":       {hostOf(w.console()), "/api/links", []string{"Authorization: Bearer " + token}},
		"the owner's token, from within page": {hostOf(w.console()), target, append(fetched(desktop), "Authorization: Bearer "+w.token)},
	} {
		if res := w.ask("POST", c.host, c.target, body, append(c.headers, form)...); res.StatusCode < 400 || strings.Contains(res.body, "claim#") || w.answers() > 0 {
			t.Fatalf("%s: %d %s", name, res.StatusCode, res.body)
		}
	}
	// A desktop may not append it on its bus either.
	if info, ok := contract.Lookup("approval.answered"); !ok || info.Action || info.SaidBy(contract.KindApp) || len(info.Boxes) > 0 {
		t.Errorf("approval.answered: %+v", info)
	}
	// Such a token can read approvals.
	if res := w.ask("GET", hostOf(w.console()), "/api/computers/-/approvals", "", "Authorization: Bearer "+token); res.StatusCode != http.StatusOK || !strings.Contains(res.body, "a.example") {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	res := w.ask("POST", hostOf(w.console()), target, body, append(fetched(w.console()), cookie, form)...)
	var acted view.Acted
	if err := json.Unmarshal([]byte(res.body), &acted); err != nil || res.StatusCode != http.StatusOK || acted.Run != waiting.Run || w.answers() != 1 {
		t.Errorf("the console itself: %d %s", res.StatusCode, res.body)
	}
}

// TestAttack22_ATokenMakesNobodyWhoAnswers shows that the holder of a token that was handed out
// can't create an account, make it another owner, and answer as that account.
func TestAttack22_ATokenMakesNobodyWhoAnswers(t *testing.T) {
	w := open(t)
	w.signIn()
	_, token, err := w.ids.NewToken(t.Context(), w.owner.ID, "ci", identity.TokenScope{})
	if err != nil {
		t.Fatal(err)
	}
	const form = "Content-Type: application/json"
	with, at := []string{"Authorization: Bearer " + token, form}, hostOf(w.console())
	res := w.ask("POST", at, "/api/accounts", `{"name":"Me too"}`, with...)
	if res.StatusCode == http.StatusForbidden {
		return
	}
	_, link, _ := strings.Cut(res.body, "/claim#")
	link, _, _ = strings.Cut(link, `"`)
	signedIn := w.ask("POST", at, "/api/claim", fmt.Sprintf(`{"token":%q}`, link), append(fetched(w.console()), form)...)
	own := append(fetched(w.console()), form, cookieOf(t, signedIn))
	var invited view.Invitation
	if err := json.Unmarshal([]byte(w.ask("POST", at, "/api/computers/-/invitations", `{"role":"owner"}`, with...).body), &invited); err != nil {
		t.Fatal(err)
	}
	w.ask("POST", at, "/api/join", fmt.Sprintf(`{"token":%q}`, invited.Token), own...)
	w.ask("POST", at, "/api/computers/-/approvals/"+waiting.ID, fmt.Sprintf(`{"digest":%q,"answer":"run"}`, waiting.Digest), own...)
	t.Errorf("a token made an account: %d; it answered %d approvals", res.StatusCode, w.answers())
}

// TestApprovalsThroughTheClient shows that the owner's own program on the machine can answer.
func TestApprovalsThroughTheClient(t *testing.T) {
	w := open(t)
	c, ctx := w.client(), within(t)
	list, more, err := c.Approvals(ctx, false, 0, 10)
	if err != nil || len(list) != 1 || list[0] != waiting || more {
		t.Fatalf("%+v, %v, %v", list, more, err)
	}
	if _, err := c.Decide(ctx, waiting.ID, view.Decision{Digest: strings.Repeat("8", 64), Answer: contract.ApprovalOnce}); !fault.Is(err, fault.Conflict) {
		t.Errorf("for another act: %v", err)
	}
	if _, err := c.Decide(ctx, waiting.ID, view.Decision{Digest: waiting.Digest, Answer: "always"}); err == nil || fault.Is(err, fault.Internal) {
		t.Errorf("an answer there is not: %v", err)
	}
	if acted, err := c.Decide(ctx, waiting.ID, view.Decision{Digest: waiting.Digest, Answer: contract.ApprovalDeny}); err != nil || acted.Sequence != 9 {
		t.Errorf("%+v, %v", acted, err)
	}
	if list, _, err := c.Approvals(ctx, false, 0, 10); err != nil || len(list) != 0 {
		t.Errorf("still open: %+v, %v", list, err)
	}
	if list, _, err := c.Approvals(ctx, true, 0, 10); err != nil || len(list) != 1 || list[0].Answer != contract.ApprovalDeny {
		t.Errorf("answered: %+v, %v", list, err)
	}

}

func (m *machine) Egress(_ context.Context, run string) ([]view.Traffic, error) {
	return []view.Traffic{{ID: "a.example:443", Host: "a.example", Port: 443, Tunnels: 2, Sent: 10, Received: int64(len(run))}}, nil
}

func TestEgressThroughTheClient(t *testing.T) {
	w := open(t)
	c, ctx := w.client(), within(t)
	if got, err := c.Egress(ctx, waiting.Run); err != nil || len(got) != 1 || got[0].Received != 36 || got[0].Sent != 10 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := c.Egress(ctx, "x"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a run that is none: %v", err)
	}
}
