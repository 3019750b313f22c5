package identity_test

import (
	"slices"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
)

// TestTokensForGit: such a token is accepted for git alone, until it expires or until it,
// or what it was made with, is revoked; an API token is accepted for git too.
func TestTokensForGit(t *testing.T) {
	ctx := t.Context()
	s, clock, _ := open(t)
	now := clock.Now()
	u, cid := owner(t, s), contract.NewCID()
	if _, err := s.Adopt(ctx, cid, u.ID, "Studio"); err != nil {
		t.Fatal(err)
	}
	api, apiSecret, err := s.NewToken(ctx, u.ID, "ci", identity.TokenScope{})
	if err != nil {
		t.Fatal(err)
	}
	scope := identity.GitScope{Computer: cid, Repository: "workspace/app", Write: true, Expires: now.Add(time.Hour)}
	child, childSecret, err := s.NewGitToken(ctx, u.ID, api.ID, "git", scope)
	if err != nil {
		t.Fatal(err)
	}
	own, secret, err := s.NewGitToken(ctx, u.ID, "", "git", scope)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.GitToken(ctx, secret)
	if err != nil || got.ID != own.ID || got.User != u.ID || got.Git.Computer != cid || got.Git.Repository != "workspace/app" || !got.Git.Write {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.Token(ctx, secret); !fault.Is(err, fault.Denied) {
		t.Errorf("the API takes a token for git: %v", err)
	}
	if got, err := s.GitToken(ctx, apiSecret); err != nil || got.Git != nil {
		t.Errorf("an API token for git: %+v, %v", got, err)
	}
	if list, err := s.Tokens(ctx, u.ID); err != nil || len(list) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, wrong := range []time.Time{now, now.Add((identity.MostGitDays + 1) * 24 * time.Hour)} {
		scope.Expires = wrong
		if _, _, err := s.NewGitToken(ctx, u.ID, "", "git", scope); !fault.Is(err, fault.Invalid) {
			t.Errorf("until %s: %v", wrong, err)
		}
	}
	if ended, err := s.RevokeToken(ctx, u.ID, api.ID); err != nil || !slices.Equal(ended, []string{api.ID, child.ID}) {
		t.Errorf("revoked %v, %v", ended, err)
	}
	if _, err := s.GitToken(ctx, childSecret); !fault.Is(err, fault.Denied) {
		t.Errorf("a token outlives the one that made it: %v", err)
	}
	scope.Expires = now.Add(time.Hour)
	if _, _, err := s.NewGitToken(ctx, u.ID, api.ID, "git", scope); !fault.Is(err, fault.Denied) {
		t.Errorf("a token that was revoked makes another one: %v", err)
	}
	scope.Computer = contract.NewCID()
	if _, _, err := s.NewGitToken(ctx, u.ID, "", "git", scope); !fault.Is(err, fault.Denied) {
		t.Errorf("a token for a computer of which its account is no member: %v", err)
	}
	clock.now.Add(time.Hour.Milliseconds())
	if _, err := s.GitToken(ctx, secret); !fault.Is(err, fault.Denied) {
		t.Errorf("a token for git is good after its end: %v", err)
	}
	if lives, err := s.Valid(ctx, own.ID); err != nil || lives {
		t.Errorf("lives after its end: %v, %v", lives, err)
	}
}
