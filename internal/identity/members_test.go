package identity_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/identity"
)

func account(t *testing.T, s *identity.Store, name string, powers ...grant.Power) identity.User {
	t.Helper()
	return must[identity.User](t)(s.NewAccount(context.Background(), name, powers))
}

func role(t *testing.T, s *identity.Store, account string, cid contract.CID) grant.Role {
	t.Helper()
	return must[grant.Holder](t)(s.Held(context.Background(), account, cid)).Role
}

// Whoever was removed while they asked for an invitation gets none, for they could come
// back with it.
func TestWhoIsOutInvitesNobody(t *testing.T) {
	s, _, _ := open(t)
	a, b := owner(t, s), account(t, s, "B")
	cid := contract.NewCID()
	must[identity.Place](t)(s.Adopt(t.Context(), cid, a.ID, "Studio"))
	for how, out := range map[string]func() ([]string, error){
		"taken out": func() ([]string, error) { return s.RemoveMember(t.Context(), cid, b.ID) },
		"an editor": func() ([]string, error) { return s.SetRole(t.Context(), cid, b.ID, grant.Editor) },
	} {
		if _, _, err := s.Accept(t.Context(), invite(t, s, cid, grant.Owner, a.ID), b.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := out(); err != nil {
			t.Fatal(err)
		}
		_, token, err := s.NewInvitation(t.Context(), cid, grant.Owner, b.ID)
		if !fault.Is(err, fault.Denied) {
			t.Errorf("who is %s invites: %v", how, err)
		}
		if _, r, err := s.Accept(t.Context(), token, b.ID); err == nil {
			t.Errorf("who was %s is back, as %s", how, r)
		}
	}
}

func invite(t *testing.T, s *identity.Store, cid contract.CID, r grant.Role, by string) string {
	t.Helper()
	_, token, err := s.NewInvitation(context.Background(), cid, r, by)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// An invitation makes one account a member, once, within its time, for as long as its maker
// is an owner, and lowers nobody's role.
func TestInvitations(t *testing.T) {
	ctx := context.Background()
	s, clock, _ := open(t)
	a, b, c := owner(t, s), account(t, s, "B"), account(t, s, "C")
	cid := contract.NewCID()
	must[identity.Place](t)(s.Adopt(ctx, cid, a.ID, "Studio"))
	if role(t, s, b.ID, cid) != grant.None {
		t.Fatal("a member without an invitation")
	}
	token := invite(t, s, cid, grant.Viewer, a.ID)
	if got, r, err := s.Accept(ctx, token, b.ID); err != nil || got != cid || r != grant.Viewer || role(t, s, b.ID, cid) != grant.Viewer {
		t.Fatal(got, r, err)
	}
	if _, _, err := s.Accept(ctx, token, c.ID); !fault.Is(err, fault.Denied) || role(t, s, c.ID, cid) != grant.None {
		t.Errorf("an invitation is used twice: %v", err)
	}
	if _, r, err := s.Accept(ctx, invite(t, s, cid, grant.Editor, a.ID), b.ID); err != nil || r != grant.Editor || role(t, s, b.ID, cid) != grant.Editor {
		t.Error(r, err)
	}
	unused := invite(t, s, cid, grant.Viewer, a.ID)
	for who, had := range map[string]grant.Role{a.ID: grant.Owner, b.ID: grant.Editor} {
		if _, _, err := s.Accept(ctx, unused, who); !fault.Is(err, fault.Conflict) || role(t, s, who, cid) != had {
			t.Errorf("who was %s already is %s, %v", had, role(t, s, who, cid), err)
		}
	}
	d := account(t, s, "D")
	if _, r, err := s.Accept(ctx, unused, d.ID); err != nil || r != grant.Viewer {
		t.Errorf("an invitation is used up by who is a member already: %s, %v", r, err)
	}
	late := invite(t, s, cid, grant.Viewer, a.ID)
	clock.forward(identity.InvitationTTL + time.Second)
	back := invite(t, s, cid, grant.Viewer, a.ID)
	list := must[[]identity.Invitation](t)(s.Invitations(ctx, cid))
	if len(list) != 1 || list[0].By != a.ID || list[0].Role != grant.Viewer {
		t.Errorf("%+v", list)
	}
	if err := s.TakeBack(ctx, contract.NewCID(), list[0].ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another computer's invitation is taken back: %v", err)
	}
	if err := s.TakeBack(ctx, cid, list[0].ID); err != nil {
		t.Error(err)
	}
	must[[]string](t)(s.SetRole(ctx, cid, b.ID, grant.Owner))
	orphan := invite(t, s, cid, grant.Owner, b.ID)
	must[[]string](t)(s.SetRole(ctx, cid, b.ID, grant.Editor))
	for what, token := range map[string]string{"late": late, "taken back": back, "by who is no owner any more": orphan, "guessed": "x"} {
		if _, _, err := s.Accept(ctx, token, c.ID); !fault.Is(err, fault.Denied) || role(t, s, c.ID, cid) != grant.None {
			t.Errorf("an invitation that is %s: %v", what, err)
		}
	}
}

// A computer keeps an owner, and a member that is removed or gets another role loses the
// desktop sessions of that computer alone.
func TestMembersChange(t *testing.T) {
	ctx := context.Background()
	s, _, _ := open(t)
	a, b := owner(t, s), account(t, s, "B")
	one, two := contract.NewCID(), contract.NewCID()
	desk := map[contract.CID]identity.Session{}
	for _, cid := range []contract.CID{one, two} {
		must[identity.Place](t)(s.Adopt(ctx, cid, a.ID, "Studio"))
		if _, _, err := s.Accept(ctx, invite(t, s, cid, grant.Editor, a.ID), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	console, secret, err := s.Claim(ctx, link(t, s, b.ID))
	if err != nil {
		t.Fatal(err)
	}
	for _, cid := range []contract.CID{one, two} {
		ses, _, err := s.Enter(ctx, must[string](t)(s.NewTicket(ctx, secret, cid)), cid)
		if err != nil {
			t.Fatal(err)
		}
		desk[cid] = ses
	}
	if got := must[identity.Session](t)(s.ByPrincipal(ctx, desk[one].ID)); got.Root != console.ID {
		t.Errorf("%+v hangs on %q", got, console.ID)
	}
	if got := must[identity.Session](t)(s.Session(ctx, secret, identity.Console)); got.Root != console.ID {
		t.Errorf("%+v is not its own root", got)
	}
	for what, f := range map[string]func() ([]string, error){
		"leaves":     func() ([]string, error) { return s.RemoveMember(ctx, one, a.ID) },
		"steps down": func() ([]string, error) { return s.SetRole(ctx, one, a.ID, grant.Editor) },
	} {
		if _, err := f(); !fault.Is(err, fault.Conflict) || role(t, s, a.ID, one) != grant.Owner {
			t.Errorf("the only owner %s: %v", what, err)
		}
	}
	if got := must[[]string](t)(s.SetRole(ctx, one, b.ID, grant.Owner)); !slices.Equal(got, []string{desk[one].ID}) {
		t.Errorf("ended %v", got)
	}
	must[[]string](t)(s.RemoveMember(ctx, one, a.ID))
	if got := must[[]identity.Member](t)(s.Members(ctx, one)); len(got) != 1 || got[0].Account != b.ID || got[0].Role != grant.Owner || got[0].Name != "B" {
		t.Errorf("%+v", got)
	}
	if _, err := s.ByPrincipal(ctx, desk[one].ID); !fault.Is(err, fault.Denied) {
		t.Errorf("the session of before: %v", err)
	}
	must[identity.Session](t)(s.ByPrincipal(ctx, desk[two].ID))
	must[identity.Session](t)(s.Session(ctx, secret, identity.Console))
	if mine := must[map[contract.CID]grant.Role](t)(s.Mine(ctx, b.ID)); len(mine) != 2 || mine[one] != grant.Owner || mine[two] != grant.Editor {
		t.Errorf("%v", mine)
	}
	if _, err := s.RemoveMember(ctx, one, a.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("who is no member: %v", err)
	}
}

// An account is removed with all that belongs to it. The machine's owner can't be removed
// and keeps every power, and nobody leaves a computer without an owner.
func TestAccounts(t *testing.T) {
	ctx := context.Background()
	s, clock, _ := open(t)
	a := owner(t, s)
	clock.now.Store(1) // a clock that is wrong does not change who is the machine's owner
	b := account(t, s, "B", grant.Computers, grant.Computers, grant.Secrets)
	if got := owner(t, s); got.ID != a.ID {
		t.Errorf("the machine became %+v's", got)
	}
	list := must[[]identity.Account](t)(s.Accounts(ctx))
	if len(list) != 2 || list[0].ID != b.ID || len(list[0].Powers) != 2 || list[0].Machine || list[0].Claimed || !list[1].Machine || len(list[1].Powers) != len(grant.Powers()) {
		t.Errorf("%+v", list)
	}
	if err := s.SetPowers(ctx, b.ID, []grant.Power{"root"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a power that there is not: %v", err)
	}
	if err := s.SetPowers(ctx, b.ID, []grant.Power{grant.Models}); err != nil {
		t.Error(err)
	}
	if h := must[grant.Holder](t)(s.Held(ctx, b.ID, "")); !slices.Equal(h.Powers, []grant.Power{grant.Models}) {
		t.Errorf("%+v", h)
	}
	cid := contract.NewCID()
	must[identity.Place](t)(s.Adopt(ctx, cid, b.ID, "B's"))
	for what, err := range map[string]error{
		"the machine's owner loses a power": s.SetPowers(ctx, a.ID, nil),
		"the machine's owner goes":          second(s.RemoveAccount(ctx, a.ID)),
		"a computer loses its only owner":   second(s.RemoveAccount(ctx, b.ID)),
	} {
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := s.Accept(ctx, invite(t, s, cid, grant.Owner, b.ID), a.ID); err != nil {
		t.Fatal(err)
	}
	ses, secret, err := s.Claim(ctx, link(t, s, b.ID))
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := s.NewToken(ctx, b.ID, "ci", identity.TokenScope{})
	if err != nil {
		t.Fatal(err)
	}
	keys := must[[]identity.Token](t)(s.Tokens(ctx, b.ID))
	for _, id := range []string{ses.ID, keys[0].ID} {
		if !must[bool](t)(s.Valid(ctx, id)) {
			t.Errorf("%s does not live", id)
		}
	}
	defer func() {
		for _, id := range []string{ses.ID, keys[0].ID, "", "t-none"} {
			if must[bool](t)(s.Valid(ctx, id)) {
				t.Errorf("%s of an account that is gone lives", id)
			}
		}
	}()
	if got := must[[]string](t)(s.RemoveAccount(ctx, b.ID)); !slices.Equal(got, []string{ses.ID}) {
		t.Errorf("ended %v", got)
	}
	_, err = s.Session(ctx, secret, identity.Console)
	denied(t, "a removed account's session", err)
	_, err = s.Token(ctx, token)
	denied(t, "a removed account's token", err)
	if h := must[grant.Holder](t)(s.Held(ctx, b.ID, cid)); h.Account != "" || h.Role != grant.None || h.Powers != nil {
		t.Errorf("nobody holds %+v", h)
	}
}

func second(_ []string, err error) error { return err }
