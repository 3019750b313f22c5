package identity_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
)

// TestWhoIsSignedInIsListedAndEnded lists an account's browsers, each with what it is, the one used last first, and none
// that has expired or is somebody else's; one is ended with the desktops that it opened, and nobody else's is.
func TestWhoIsSignedInIsListedAndEnded(t *testing.T) {
	s, clock, _ := open(t)
	ctx := context.Background()
	me := owner(t, s)
	other := must[identity.User](t)(s.NewAccount(ctx, "Other", nil))
	sign := func(user, device string) (identity.Session, string) {
		t.Helper()
		ses, secret, err := s.Claim(ctx, link(t, s, user))
		if err == nil {
			err = s.Describe(ctx, ses.ID, device)
		}
		if err != nil {
			t.Fatal(err)
		}
		clock.forward(2 * time.Minute)
		return ses, secret
	}
	listed := func(user string) (out []string) {
		t.Helper()
		for _, v := range must[[]identity.SignedIn](t)(s.SignedIn(ctx, user)) {
			out = append(out, v.Device)
		}
		return out
	}
	old, secret := sign(me.ID, "old")
	sign(me.ID, "new")
	foreign, _ := sign(other.ID, "theirs")
	if got := listed(me.ID); !slices.Equal(got, []string{"new", "old"}) {
		t.Errorf("listed are %v", got)
	}
	if _, err := s.Session(ctx, secret, identity.Console); err != nil {
		t.Fatal(err)
	}
	list := must[[]identity.SignedIn](t)(s.SignedIn(ctx, me.ID))
	if list[0].ID != old.ID || list[0].Used.Sub(list[0].Created) != 6*time.Minute || list[0].Expires.Sub(list[0].Used) != identity.SessionIdle {
		t.Errorf("the one used last is %+v", list[0])
	}

	cid := contract.NewCID()
	ticket, err := s.NewTicket(ctx, secret, cid)
	if err != nil {
		t.Fatal(err)
	}
	desktop, _, err := s.Enter(ctx, ticket, cid)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{foreign.ID, desktop.ID, "s-none"} {
		if ids, err := s.EndSession(ctx, me.ID, id); !fault.Is(err, fault.NotFound) || len(ids) > 0 {
			t.Errorf("%s is ended: %v, %v", id, ids, err)
		}
	}
	ids, err := s.EndSession(ctx, me.ID, old.ID)
	slices.Sort(ids)
	want := []string{old.ID, desktop.ID}
	slices.Sort(want)
	if err != nil || !slices.Equal(ids, want) {
		t.Errorf("ended are %v, %v; want %v", ids, err, want)
	}
	if _, err := s.Session(ctx, secret, identity.Console); !fault.Is(err, fault.Denied) {
		t.Errorf("the session that was ended: %v", err)
	}
	if got := listed(other.ID); !slices.Equal(got, []string{"theirs"}) {
		t.Errorf("the other's are %v", got)
	}
	clock.forward(identity.SessionIdle)
	if got := listed(me.ID); len(got) > 0 {
		t.Errorf("listed after a week: %v", got)
	}
}
