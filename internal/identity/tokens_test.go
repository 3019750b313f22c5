package identity_test

import (
	"slices"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
)

// A token allows what it was made for until it expires. Then it is neither accepted nor
// listed, nor is a token for git that it made, and it does not count against the limit.
func TestTokensHaveAScopeAndAnEnd(t *testing.T) {
	ctx := t.Context()
	s, clock, _ := open(t)
	u, now, cid := owner(t, s), clock.Now(), contract.NewCID()
	if _, err := s.Adopt(ctx, cid, u.ID, "Studio"); err != nil {
		t.Fatal(err)
	}
	few := []contract.Capability{contract.CanRead, contract.CanPrompt}
	made, secret, err := s.NewToken(ctx, u.ID, "bot", identity.TokenScope{May: few, Expires: now.Add(time.Hour)})
	if err != nil || made.Whole || !slices.Equal(made.May, few) || made.Scope() != contract.SetOf(few...) {
		t.Fatalf("%+v, %v", made, err)
	}
	got, err := s.Token(ctx, secret)
	if err != nil || got.Whole || !slices.Equal(got.May, few) || got.Scope() != contract.SetOf(few...) || !got.Expires.Equal(made.Expires) {
		t.Errorf("%+v, %v", got, err)
	}
	_, none, err := s.NewToken(ctx, u.ID, "nothing", identity.TokenScope{May: []contract.Capability{}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Token(ctx, none); err != nil || got.Whole || got.Scope() != 0 {
		t.Errorf("a token for nothing is for %v, %v", got.Scope().List(), err)
	}
	_, all, err := s.NewToken(ctx, u.ID, "all", identity.TokenScope{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Token(ctx, all); err != nil || !got.Whole || got.Scope() != contract.Everything() || !got.Expires.IsZero() {
		t.Errorf("a token for everything: %+v, %v", got, err)
	}
	git, gitSecret, err := s.NewGitToken(ctx, u.ID, made.ID, "git", identity.GitScope{Computer: cid, Repository: "workspace/app", Expires: now.Add(24 * time.Hour)})
	if err != nil || git.Git.Expires.After(made.Expires) {
		t.Errorf("a token for git outlives the one that makes it: %+v, %v", git.Git, err)
	}
	if got, err := s.GitToken(ctx, gitSecret); err != nil || got.Scope() != contract.SetOf(contract.CanRead) {
		t.Errorf("a token for git that reads is for %v, %v", got.Scope().List(), err)
	}
	for _, wrong := range []time.Time{now, now.Add((identity.MostTokenDays + 1) * 24 * time.Hour)} {
		if _, _, err := s.NewToken(ctx, u.ID, "wrong", identity.TokenScope{Expires: wrong}); !fault.Is(err, fault.Invalid) {
			t.Errorf("until %s: %v", wrong, err)
		}
	}
	clock.now.Add(time.Hour.Milliseconds())
	if _, err := s.Token(ctx, secret); !fault.Is(err, fault.Denied) {
		t.Errorf("a token is good after its end: %v", err)
	}
	if _, err := s.GitToken(ctx, gitSecret); !fault.Is(err, fault.Denied) {
		t.Errorf("a token for git is good after the end of the one that made it: %v", err)
	}
	if lives, err := s.Valid(ctx, made.ID); err != nil || lives {
		t.Errorf("it lives after its end: %v, %v", lives, err)
	}
	if list, err := s.Tokens(ctx, u.ID); err != nil || len(list) != 2 {
		t.Errorf("listed: %+v, %v", list, err)
	}
}

func TestNoSecretIsTakenForAnOption(t *testing.T) {
	for range 2000 {
		if secret := identity.NewSecret(""); secret[0] == '-' {
			t.Fatalf("a program that is given %q as an argument takes it for an option", secret)
		}
	}
}
