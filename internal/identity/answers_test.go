package identity_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/identity"
)

// sharedComputer is a computer of A's in which B is an editor, with one of each kind of
// credential of B's.
type sharedComputer struct {
	*identity.Store
	file                    string
	a, b                    identity.User
	cid                     contract.CID
	token                   identity.Token
	secret, cookie, desktop string
	principal               string
}

func moveIn(t *testing.T) *sharedComputer {
	t.Helper()
	ctx := context.Background()
	s, _, file := open(t)
	h := &sharedComputer{Store: s, file: file, a: owner(t, s), b: account(t, s, "B", grant.Secrets, grant.Models), cid: contract.NewCID()}
	must[identity.Place](t)(s.Adopt(ctx, h.cid, h.a.ID, "Studio"))
	if _, _, err := s.Accept(ctx, invite(t, s, h.cid, grant.Editor, h.a.ID), h.b.ID); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.token, h.secret, err = s.NewToken(ctx, h.b.ID, "a program", identity.TokenScope{}); err != nil {
		t.Fatal(err)
	}
	if _, h.cookie, err = s.Claim(ctx, link(t, s, h.b.ID)); err != nil {
		t.Fatal(err)
	}
	ticket := must[string](t)(s.NewTicket(ctx, h.cookie, h.cid))
	ses, desktop, err := s.Enter(ctx, ticket, h.cid)
	if err != nil {
		t.Fatal(err)
	}
	h.desktop, h.principal = desktop, ses.ID
	return h
}

// can says whether a holder has a capability, in the computer or over the machine.
func can(held grant.Holder, c contract.Capability) bool {
	in, _ := held.Inside(contract.Person(held.Account), contract.Everything())
	of, _ := held.Outside(contract.Person(held.Account), contract.Everything())
	return in.Can(c) || grant.Power(c).Known() && of.Can(c)
}

// let returns which credentials let B in, and which capabilities B has.
func (h *sharedComputer) let() (map[string]bool, error) {
	ctx := context.Background()
	_, token := h.Token(ctx, h.secret)
	_, cookie := h.Session(ctx, h.cookie, identity.Console)
	_, desktop := h.Session(ctx, h.desktop, identity.Desktop)
	_, principal := h.ByPrincipal(ctx, h.principal)
	_, place := h.ByID(ctx, h.cid)
	_, handle := h.ByHandle(ctx, "studio")
	for _, err := range []error{token, cookie, desktop, principal, place, handle} {
		if err != nil && !fault.Is(err, fault.Denied) && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
	}
	liveToken, err := h.Valid(ctx, h.token.ID)
	if err != nil {
		return nil, err
	}
	liveDesktop, err := h.Valid(ctx, h.principal)
	if err != nil {
		return nil, err
	}
	held, err := h.Held(ctx, h.b.ID, h.cid)
	if err != nil {
		return nil, err
	}
	mine, err := h.Mine(ctx, h.b.ID)
	if err != nil {
		return nil, err
	}
	return map[string]bool{
		"token": token == nil, "cookie": cookie == nil, "desktop": desktop == nil, "principal": principal == nil, "place": place == nil, "handle": handle == nil,
		"live token": liveToken, "live desktop": liveDesktop,
		"views": can(held, contract.CanRead), "edits": can(held, contract.CanWrite), "member": mine[h.cid] != grant.None, "editor": mine[h.cid].AtLeast(grant.Editor),
		"secrets": can(held, contract.CanSecrets), "models": can(held, contract.CanModels),
	}, nil
}

// refuses asks until everything is kept, takes something away, and checks that the next
// question is refused for exactly these.
func (h *sharedComputer) refuses(t *testing.T, take func() error, lost ...string) {
	t.Helper()
	for range 2 {
		for what, is := range must[map[string]bool](t)(h.let()) {
			if !is {
				t.Fatalf("B has no %s to begin with", what)
			}
		}
	}
	if h.Kept() == 0 {
		t.Error("nothing is kept")
	}
	if err := take(); err != nil {
		t.Fatal(err)
	}
	after := must[map[string]bool](t)(h.let())
	for _, what := range lost {
		if after[what] {
			t.Errorf("%s is let in still", what)
		}
		delete(after, what)
	}
	for what, is := range after {
		if !is {
			t.Errorf("%s is refused", what)
		}
	}
}

// What was taken away is refused at the very next question, whoever took it away, and
// whatever was answered a moment before.
func TestWhatWasTakenAwayIsRefusedAtOnce(t *testing.T) {
	ctx := context.Background()
	cases := map[string]struct {
		take func(*sharedComputer) error
		lost []string
	}{
		"a token":      {func(h *sharedComputer) error { return second(h.RevokeToken(ctx, h.b.ID, h.token.ID)) }, []string{"token", "live token"}},
		"a session":    {func(h *sharedComputer) error { return second(h.SignOut(ctx, h.cookie)) }, []string{"cookie", "desktop", "principal", "live desktop"}},
		"all sessions": {func(h *sharedComputer) error { return second(h.RevokeAll(ctx, h.b.ID)) }, []string{"cookie", "desktop", "principal", "live desktop"}},
		"a power":      {func(h *sharedComputer) error { return h.SetPowers(ctx, h.b.ID, []grant.Power{grant.Models}) }, []string{"secrets"}},
		"a role":       {func(h *sharedComputer) error { return second(h.SetRole(ctx, h.cid, h.b.ID, grant.Viewer)) }, []string{"edits", "editor", "desktop", "principal", "live desktop"}},
		"a membership": {func(h *sharedComputer) error { return second(h.RemoveMember(ctx, h.cid, h.b.ID)) }, []string{"views", "edits", "member", "editor", "desktop", "principal", "live desktop"}},
		"the computer": {func(h *sharedComputer) error { return h.Forget(ctx, h.cid) }, []string{"views", "edits", "member", "editor", "place", "handle"}},
		"the handle":   {func(h *sharedComputer) error { _, err := h.Rehandle(ctx, h.cid, "Elsewhere"); return err }, []string{"handle"}},
		"the account":  {func(h *sharedComputer) error { return second(h.RemoveAccount(ctx, h.b.ID)) }, []string{"token", "live token", "cookie", "desktop", "principal", "live desktop", "views", "edits", "member", "editor", "secrets", "models"}},
		"by a program": {func(h *sharedComputer) error { return h.elsewhere("DELETE FROM tokens WHERE name = 'a program'") }, []string{"token", "live token"}},
		"by many steps": {func(h *sharedComputer) error {
			return h.elsewhere("UPDATE members SET role = 'viewer' WHERE role = 'editor'")
		}, []string{"edits", "editor"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := moveIn(t)
			h.refuses(t, func() error { return c.take(h) }, c.lost...)
		})
	}
}

// elsewhere changes the file by another connection, as another program would.
func (h *sharedComputer) elsewhere(query string) error {
	db, err := sql.Open("sqlite", "file:"+h.file+"?_pragma=busy_timeout(5000)")
	if err == nil {
		_, err = db.Exec(query)
	}
	if db != nil {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

// While others ask and write to the file all the time, whoever asks after a token was
// revoked, a session ended or a member removed is refused.
func TestNobodyIsLetInAfterwards(t *testing.T) {
	ctx := context.Background()
	h := moveIn(t)
	for round := range 40 {
		token, secret, err := h.NewToken(ctx, h.b.ID, fmt.Sprint("round ", round), identity.TokenScope{})
		if err != nil {
			t.Fatal(err)
		}
		_, cookie, err := h.Claim(ctx, link(t, h.Store, h.b.ID))
		if err != nil {
			t.Fatal(err)
		}
		if held := must[grant.Holder](t)(h.Held(ctx, h.b.ID, h.cid)); held.Role == grant.None {
			if _, _, err := h.Accept(ctx, invite(t, h.Store, h.cid, grant.Editor, h.a.ID), h.b.ID); err != nil {
				t.Fatal(err)
			}
		}
		asked := map[string]func() error{
			"a revoked token":  func() error { return second2(h.Token(ctx, secret)) },
			"an ended session": func() error { return second2(h.Session(ctx, cookie, identity.Console)) },
			"no member": func() error {
				held, err := h.Held(ctx, h.b.ID, h.cid)
				if err != nil {
					return err
				}
				_, err = held.Inside(contract.Person(h.b.ID), contract.Everything())
				return err
			},
		}
		var gone, over atomic.Bool
		var group sync.WaitGroup
		for what, ask := range asked {
			for range 2 {
				group.Go(func() {
					for !over.Load() {
						after := gone.Load()
						err := ask()
						if after && err == nil {
							t.Errorf("%s is let in", what)
							return
						}
						if err != nil && !fault.Is(err, fault.Denied) && !fault.Is(err, fault.NotFound) {
							t.Error(err)
							return
						}
						if after {
							return
						}
					}
				})
			}
		}
		group.Go(func() { // fills and empties the memory with other answers
			for i := 0; !gone.Load() && !over.Load(); i++ {
				if err := h.Spend(ctx, identity.Call{ID: fmt.Sprint(round, " ", i), Computer: h.cid}); err != nil {
					t.Error(err)
				}
			}
		})
		_, err1 := h.RevokeToken(ctx, h.b.ID, token.ID)
		_, err2 := h.SignOut(ctx, cookie)
		_, err3 := h.RemoveMember(ctx, h.cid, h.b.ID)
		for _, err := range []error{err1, err2, err3} {
			if err != nil {
				over.Store(true)
				t.Error(err)
			}
		}
		gone.Store(true)
		group.Wait()
	}
}

func second2[T any](_ T, err error) error { return err }

// Nothing is kept about what does not exist, however often and under however many names it
// is asked for.
func TestWhatIsNotThereIsNotKept(t *testing.T) {
	ctx := context.Background()
	h := moveIn(t)
	must[map[string]bool](t)(h.let())
	before := h.Kept()
	for i := range 50 {
		name := fmt.Sprintf("%043d", i)
		_, err1 := h.Token(ctx, name)
		_, err2 := h.Session(ctx, name, identity.Console)
		_, err3 := h.ByPrincipal(ctx, name)
		if must[bool](t)(h.Valid(ctx, name)) {
			t.Error("what there is not lives")
		}
		for _, err := range []error{err1, err2, err3} {
			denied(t, "what there is not", err)
		}
		if held := must[grant.Holder](t)(h.Held(ctx, h.b.ID, contract.NewCID())); held.Role != grant.None {
			t.Error(held)
		}
		if held := must[grant.Holder](t)(h.Held(ctx, name, h.cid)); held.Account != "" {
			t.Error(held)
		}
		if mine := must[map[contract.CID]grant.Role](t)(h.Mine(ctx, name)); len(mine) > 0 {
			t.Error(mine)
		}
		if _, err := h.ByHandle(ctx, name); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
	}
	if h.Kept() != before {
		t.Errorf("%d answers are kept, of %d things that there are", h.Kept(), before)
	}
}

// A caller who changes an answer changes only their own copy.
func TestAnswersAreTheirCallers(t *testing.T) {
	ctx := context.Background()
	h := moveIn(t)
	for range 2 {
		held := must[grant.Holder](t)(h.Held(ctx, h.b.ID, h.cid))
		mine := must[map[contract.CID]grant.Role](t)(h.Mine(ctx, h.b.ID))
		if mine[h.cid] != grant.Editor || can(held, contract.CanAccounts) {
			t.Fatal(held, mine)
		}
		held.Powers[0], mine[h.cid] = grant.Accounts, grant.Owner
	}
}

// When it can't be told whether the file has changed, nobody is let in; afterwards
// everything works again, and no earlier answer is given.
func TestWithoutItsWatchNobodyIsLetIn(t *testing.T) {
	ctx := context.Background()
	h := moveIn(t)
	must[map[string]bool](t)(h.let())
	h.LoseWatch()
	if _, err := h.Token(ctx, h.secret); err == nil {
		t.Error("let in by memory alone")
	}
	h.refuses(t, func() error { return second(h.RevokeToken(ctx, h.b.ID, h.token.ID)) }, "token", "live token")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if held, err := h.Held(ctx, h.b.ID, h.cid); err == nil || held.Role != grant.None {
		t.Errorf("a closed store answers %v, %v", held, err)
	}
}

// BenchmarkAnswers asks what each request asks, of a file that does not change and of one
// that changes before each question.
func BenchmarkAnswers(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := identity.Open(ctx, b.TempDir()+"/control.sqlite")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	u, err := s.Owner(ctx)
	if err != nil {
		b.Fatal(err)
	}
	cid := contract.NewCID()
	if _, err := s.Adopt(ctx, cid, u.ID, "Studio"); err != nil {
		b.Fatal(err)
	}
	_, secret, err := s.NewToken(ctx, u.ID, "a program", identity.TokenScope{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_, err1 := s.Token(ctx, secret)
		_, err2 := s.Mine(ctx, u.ID)
		if _, err := s.Held(ctx, u.ID, cid); err1 != nil || err2 != nil || err != nil {
			b.Fatal(err1, err2, err)
		}
	}
}
