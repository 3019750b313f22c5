package control_test

import (
	"context"
	"maps"
	"net/http"
	"testing"

	"choir.dev/choiros/internal/grant"
)

// TestTheNextRequestIsRefused shows that the request right after something was taken away is
// refused, whichever way it comes in, although the one before was answered.
func TestTheNextRequestIsRefused(t *testing.T) {
	ctx := context.Background()
	w := open(t)
	p := w.person("B")
	cid := w.machine().cid
	w.join(p, cid, grant.Editor)
	tokens, err := w.ids.Tokens(ctx, p.ID)
	check(t, err)
	origin, desktop := w.enter(p.cookie)
	console := append(fetched(w.console()), p.cookie)
	asks := map[string]func() int{
		"by a token": func() int {
			return w.ask("GET", hostOf(w.console()), "/api/computers/"+string(cid)+"/runs", "", "Authorization: Bearer "+p.token).StatusCode
		},
		"the only computer there is": func() int {
			return w.ask("GET", hostOf(w.console()), "/api/computers/-/runs", "", "Authorization: Bearer "+p.token).StatusCode
		},
		"on the console": func() int {
			return w.ask("GET", hostOf(w.console()), "/api/computers/"+string(cid)+"/runs", "", console...).StatusCode
		},
		"on a desktop": func() int {
			return w.ask("GET", hostOf(origin), "/", "", append(w.framed(), desktop)...).StatusCode
		},
	}
	want := map[string]int{}
	for how := range asks {
		want[how] = http.StatusOK
	}
	for _, step := range []struct {
		what string
		take func() error
		then map[string]int // the answers from then on
	}{
		{"nothing", func() error { return nil }, nil},
		{"the token", func() error { return last(w.ids.RevokeToken(ctx, p.ID, tokens[0].ID)) }, map[string]int{"by a token": http.StatusUnauthorized, "the only computer there is": http.StatusUnauthorized}},
		{"the place in the computer", func() error { return last(w.ids.RemoveMember(ctx, cid, p.ID)) }, map[string]int{"on the console": http.StatusNotFound, "on a desktop": http.StatusUnauthorized}},
		{"the session", func() error { return last(w.ids.RevokeAll(ctx, p.ID)) }, map[string]int{"on the console": http.StatusUnauthorized}},
	} {
		if err := step.take(); err != nil {
			t.Fatal(step.what, err)
		}
		maps.Copy(want, step.then)
		for how, ask := range asks {
			for range 2 {
				if got := ask(); got != want[how] {
					t.Errorf("after %s went, a request %s: %d", step.what, how, got)
				}
			}
		}
	}
}

func last(_ []string, err error) error { return err }
