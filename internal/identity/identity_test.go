package identity_test

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
)

type clock struct{ now atomic.Int64 }

func (c *clock) Now() time.Time          { return time.UnixMilli(c.now.Load()) }
func (c *clock) forward(d time.Duration) { c.now.Add(d.Milliseconds()) }

func open(t *testing.T) (*identity.Store, *clock, string) {
	t.Helper()
	c := &clock{}
	c.now.Store(1_800_000_000_000)
	file := filepath.Join(t.TempDir(), "control.sqlite")
	s, err := identity.Open(context.Background(), file, identity.WithClock(c.Now))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, c, file
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func owner(t *testing.T, s *identity.Store) identity.User {
	t.Helper()
	return must[identity.User](t)(s.Owner(context.Background()))
}

func link(t *testing.T, s *identity.Store, user string) string {
	t.Helper()
	token, _, err := s.NewLink(context.Background(), user)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func denied(t *testing.T, what string, err error) {
	t.Helper()
	if !fault.Is(err, fault.Denied) {
		t.Errorf("%s: %v, want denied", what, err)
	}
}

func TestLink(t *testing.T) {
	ctx := context.Background()
	s, clock, _ := open(t)
	u := owner(t, s)
	if again := owner(t, s); again.ID != u.ID || u.Claimed {
		t.Fatalf("owner: %+v, %+v", u, again)
	}
	first, second := link(t, s, u.ID), link(t, s, u.ID)
	for _, guess := range []string{"", "x", first + "x", first[:len(first)-1], strings.ToUpper(first), strings.Repeat("a", 43), strings.Repeat("a", 1<<20)} {
		_, _, err := s.Claim(ctx, guess)
		denied(t, "a guess", err)
	}
	ses, secret, err := s.Claim(ctx, first)
	if err != nil || ses.User != u.ID || ses.Kind != identity.Console {
		t.Fatalf("%+v, %v", ses, err)
	}
	if !owner(t, s).Claimed {
		t.Error("the account is not claimed")
	}
	_, _, err = s.Claim(ctx, first)
	denied(t, "a link used twice", err)
	_, _, err = s.Claim(ctx, second)
	denied(t, "another link of that account", err)
	got := must[identity.Session](t)(s.Session(ctx, secret, identity.Console))
	if got.ID != ses.ID {
		t.Errorf("%+v", got)
	}
	third := link(t, s, u.ID)
	clock.forward(identity.LinkTTL)
	_, _, err = s.Claim(ctx, third)
	denied(t, "an expired link", err)
}

func TestOneOfManyClaimsWins(t *testing.T) {
	s, _, _ := open(t)
	token := link(t, s, owner(t, s).ID)
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, _, err := s.Claim(context.Background(), token); err == nil {
				won.Add(1)
			} else if !fault.Is(err, fault.Denied) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d claims won", won.Load())
	}
}

func TestSessionsEnd(t *testing.T) {
	ctx := context.Background()
	signIn := func(t *testing.T, s *identity.Store) string {
		_, secret, err := s.Claim(ctx, link(t, s, owner(t, s).ID))
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	t.Run("idle", func(t *testing.T) {
		s, clock, _ := open(t)
		secret := signIn(t, s)
		clock.forward(identity.SessionIdle - time.Minute)
		must[identity.Session](t)(s.Session(ctx, secret, identity.Console)) // using a session renews it
		clock.forward(identity.SessionIdle - time.Minute)
		must[identity.Session](t)(s.Session(ctx, secret, identity.Console))
		clock.forward(identity.SessionIdle)
		_, err := s.Session(ctx, secret, identity.Console)
		denied(t, "idle", err)
	})
	t.Run("absolute", func(t *testing.T) {
		s, clock, _ := open(t)
		secret := signIn(t, s)
		for range int(identity.SessionTTL/identity.SessionIdle) + 1 {
			if _, err := s.Session(ctx, secret, identity.Console); err != nil {
				t.Fatal(err)
			}
			clock.forward(identity.SessionIdle - time.Hour)
		}
		_, err := s.Session(ctx, secret, identity.Console)
		denied(t, "too old", err)
	})
	t.Run("another kind", func(t *testing.T) {
		s, _, _ := open(t)
		_, err := s.Session(ctx, signIn(t, s), identity.Desktop)
		denied(t, "a console session as a desktop's", err)
	})
	t.Run("everywhere", func(t *testing.T) {
		s, _, _ := open(t)
		u := owner(t, s)
		a, b := signIn(t, s), signIn(t, s)
		cid := contract.NewCID()
		ses, desktop, err := s.Enter(ctx, must[string](t)(s.NewTicket(ctx, a, cid)), cid)
		if err != nil {
			t.Fatal(err)
		}
		waiting := must[string](t)(s.NewTicket(ctx, b, cid))
		pending := link(t, s, u.ID)
		ended := must[[]string](t)(s.RevokeAll(ctx, u.ID))
		if len(ended) != 3 || !strings.Contains(strings.Join(ended, " "), ses.ID) {
			t.Errorf("ended %v", ended)
		}
		for _, secret := range []string{a, b} {
			_, err := s.Session(ctx, secret, identity.Console)
			denied(t, "console", err)
		}
		_, err = s.Session(ctx, desktop, identity.Desktop)
		denied(t, "desktop", err)
		_, _, err = s.Enter(ctx, waiting, cid)
		denied(t, "a waiting ticket", err)
		_, _, err = s.Claim(ctx, pending)
		denied(t, "a waiting link", err)
		_, err = s.ByPrincipal(ctx, ses.ID)
		denied(t, "its principal", err)
	})
	t.Run("one console with its desktops", func(t *testing.T) {
		s, _, _ := open(t)
		a, b := signIn(t, s), signIn(t, s)
		cid := contract.NewCID()
		_, ofA, err := s.Enter(ctx, must[string](t)(s.NewTicket(ctx, a, cid)), cid)
		if err != nil {
			t.Fatal(err)
		}
		_, ofB, err := s.Enter(ctx, must[string](t)(s.NewTicket(ctx, b, cid)), cid)
		if err != nil {
			t.Fatal(err)
		}
		if ended := must[[]string](t)(s.SignOut(ctx, a)); len(ended) != 2 {
			t.Errorf("ended %v", ended)
		}
		_, err = s.Session(ctx, ofA, identity.Desktop)
		denied(t, "its desktop", err)
		must[identity.Session](t)(s.Session(ctx, ofB, identity.Desktop))
		must[identity.Session](t)(s.Session(ctx, b, identity.Console))
		_, err = s.NewTicket(ctx, a, cid)
		denied(t, "a ticket of an ended session", err)
	})
}

func TestTicket(t *testing.T) {
	ctx := context.Background()
	s, clock, _ := open(t)
	console, secret, err := s.Claim(ctx, link(t, s, owner(t, s).ID))
	if err != nil {
		t.Fatal(err)
	}
	mine, other := contract.NewCID(), contract.NewCID()
	ticket := must[string](t)(s.NewTicket(ctx, secret, mine))
	ses, desktop, err := s.Enter(ctx, ticket, mine)
	if err != nil || ses.Computer != mine || ses.Expires.After(console.Expires) {
		t.Fatalf("%+v, %v", ses, err)
	}
	_, _, err = s.Enter(ctx, ticket, mine)
	denied(t, "used twice", err)
	_, err = s.NewTicket(ctx, desktop, mine)
	denied(t, "made by a desktop", err)
	_, err = s.Session(ctx, desktop, identity.Console)
	denied(t, "a desktop's session as the console's", err)
	ticket = must[string](t)(s.NewTicket(ctx, secret, mine))
	_, _, err = s.Enter(ctx, ticket, other)
	denied(t, "another computer", err)
	_, _, err = s.Enter(ctx, ticket, mine)
	denied(t, "after it was shown elsewhere", err)
	ticket = must[string](t)(s.NewTicket(ctx, secret, mine))
	clock.forward(identity.TicketTTL)
	_, _, err = s.Enter(ctx, ticket, mine)
	denied(t, "expired", err)
	for range 64 {
		must[string](t)(s.NewTicket(ctx, secret, mine))
	}
	if _, err := s.NewTicket(ctx, secret, mine); !fault.Is(err, fault.Exhausted) {
		t.Errorf("tickets without end: %v", err)
	}
}

// TestNoSecretAtRest (attack 39) shows that nobody can sign in with what the file contains.
func TestNoSecretAtRest(t *testing.T) {
	ctx := context.Background()
	s, _, file := open(t)
	u := owner(t, s)
	unused := link(t, s, u.ID)
	_, session, err := s.Claim(ctx, link(t, s, u.ID))
	if err != nil {
		t.Fatal(err)
	}
	ticket := must[string](t)(s.NewTicket(ctx, session, contract.NewCID()))
	_, token, err := s.NewToken(ctx, u.ID, "ci", identity.TokenScope{})
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(file + suffix)
		if err != nil {
			t.Fatal(err)
		}
		for name, secret := range map[string]string{"link": unused, "session": session, "ticket": ticket, "token": strings.TrimPrefix(token, "choir_")} {
			if bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s holds the %s", filepath.Base(file)+suffix, name)
			}
		}
	}
}

func TestTokens(t *testing.T) {
	ctx := context.Background()
	s, _, file := open(t)
	u := owner(t, s)
	keep := filepath.Join(filepath.Dir(file), "keys", "token")
	first := must[string](t)(s.MachineToken(ctx, keep, ""))
	if again := must[string](t)(s.MachineToken(ctx, keep, "")); again != first {
		t.Error("the machine's token changed")
	}
	if st, err := os.Stat(keep); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if tok := must[identity.Token](t)(s.Token(ctx, first)); tok.User != u.ID {
		t.Errorf("%+v", tok)
	}
	if err := os.WriteFile(keep, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	second := must[string](t)(s.MachineToken(ctx, keep, ""))
	_, err := s.Token(ctx, first)
	denied(t, "the replaced token", err)
	if st, err := os.Stat(keep); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	// The file was lost together with the keys: the token that was given out stays valid and is
	// stored again.
	elsewhere := filepath.Join(filepath.Dir(file), "keys made anew", "token")
	if again := must[string](t)(s.MachineToken(ctx, elsewhere, second)); again != second {
		t.Error("the token that was given out changed")
	}
	if again := must[string](t)(s.MachineToken(ctx, elsewhere, "")); again != second {
		t.Error("the token that was given out is not kept")
	}
	must[[]string](t)(s.RevokeAll(ctx, u.ID))
	must[identity.Token](t)(s.Token(ctx, second)) // signing out everywhere ends browsers' sessions only
	tok, secret, err := s.NewToken(ctx, u.ID, "ci", identity.TokenScope{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RevokeToken(ctx, "u-other", tok.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("somebody else's: %v", err)
	}
	must[identity.Token](t)(s.Token(ctx, secret))
	if list := must[[]identity.Token](t)(s.Tokens(ctx, u.ID)); len(list) != 2 || !list[0].Machine || list[1].Name != "ci" {
		t.Errorf("%+v", list)
	}
	if _, err := s.RevokeToken(ctx, u.ID, tok.ID); err != nil {
		t.Fatal(err)
	}
	_, err = s.Token(ctx, secret)
	denied(t, "revoked", err)
}

func TestHandles(t *testing.T) {
	ctx := context.Background()
	s, _, _ := open(t)
	u := owner(t, s)
	a, b := contract.NewCID(), contract.NewCID()
	if p := must[identity.Place](t)(s.Adopt(ctx, a, u.ID, "My Studio!")); p.Handle != "my-studio" {
		t.Errorf("%+v", p)
	}
	if p := must[identity.Place](t)(s.Adopt(ctx, a, "u-other", "Other")); p.Handle != "my-studio" {
		t.Errorf("adopted twice: %+v", p)
	}
	if p := must[identity.Place](t)(s.Adopt(ctx, b, u.ID, "my studio")); p.Handle != "my-studio-2" {
		t.Errorf("%+v", p)
	}
	for name, want := range map[string]string{"": "computer", "日本語": "computer", "xn--80ak6aa92e.com": "xn-80ak6aa92e-com", "../..": "computer", "A--B": "a-b",
		strings.Repeat("long", 100): strings.Repeat("long", 10)} {
		if p := must[identity.Place](t)(s.Rehandle(ctx, b, name)); p.Handle != want {
			t.Errorf("%q: %q", name, p.Handle)
		}
	}
	if p := must[identity.Place](t)(s.ByHandle(ctx, "my-studio")); p.Computer != a {
		t.Errorf("%+v", p)
	}
	if _, err := s.ByHandle(ctx, "nobody"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

func TestReopenAndNewerVersion(t *testing.T) {
	ctx := context.Background()
	s, _, file := open(t)
	id := owner(t, s).ID
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := identity.Open(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	if got := owner(t, s).ID; got != id {
		t.Errorf("the owner changed from %s to %s", id, got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(raise); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.Open(ctx, file); !fault.Is(err, fault.Newer) || fault.HintOf(err) == "" {
		t.Errorf("a newer file: %v", err)
	}
}

func TestTries(t *testing.T) {
	c := &clock{}
	c.now.Store(1_800_000_000_000)
	tries := identity.NewTries(c.Now)
	n := 0
	for range 50 {
		if tries.Allow("10.0.0.1") {
			n++
		}
	}
	if n != 10 || !tries.Allow("10.0.0.2") {
		t.Errorf("%d tries of one address", n)
	}
	c.forward(6 * time.Second)
	if !tries.Allow("10.0.0.1") {
		t.Error("never again")
	}
}

// TestTheFileIsItsOwnersOnly: nobody else can read it or the files that SQLite puts beside
// it.
func TestTheFileIsItsOwnersOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sqlite")
	for _, mode := range []os.FileMode{0, 0o644} { // a new file, and an existing one
		if mode != 0 {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		s, err := identity.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Owner(t.Context()); err != nil {
			t.Error(err)
		}
		found, err := filepath.Glob(path + "*")
		if err != nil || len(found) < 2 {
			t.Errorf("%v, %v", found, err)
		}
		for _, name := range found {
			if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v, %v", name, st.Mode(), err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
