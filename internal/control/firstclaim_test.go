package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"choir.dev/choiros/console"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/contract/themes"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

type slowAll struct{ control.Computers }
type slowOne struct{ control.Computer }

func (s slowAll) Get(ctx context.Context, cid contract.CID) (control.Computer, error) {
	c, err := s.Computers.Get(ctx, cid)
	if err != nil {
		return nil, err
	}
	return slowOne{c}, nil
}

func (s slowOne) Methods() rpc.Table {
	t := s.Computer.Methods()
	delete(t, rpc.CheckpointCreate.Name)
	rpc.Bind(t, rpc.CheckpointCreate, func(ctx context.Context, _ rpc.Caller, _ rpc.CheckpointRequest) (view.Checkpointed, error) {
		<-ctx.Done() // a keeper that is busy for longer than the request may take
		return view.Checkpointed{}, ctx.Err()
	})
	return t
}

// claim claims a new computer by day, and returns the answer and what it says.
func claimByDay(t *testing.T, w *world) (*http.Response, string) {
	t.Helper()
	token, _, err := w.ids.NewLink(t.Context(), w.owner.ID)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/api/claim", w.port), strings.NewReader(fmt.Sprintf(`{"token":%q,"name":"My Studio","scheme":"light"}`, token)))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = hostOf(w.console())
	for _, h := range append(fetched(w.console()), "Content-Type: application/json") {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

// seeded gives a world's computer the theme of a new one.
func seeded(t *testing.T, w *world, theme contract.Theme) {
	t.Helper()
	b, err := json.Marshal(theme)
	if err != nil {
		t.Fatal(err)
	}
	m := w.machine()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[contract.ThemePath] = b
}

func themeOf(w *world) string {
	m := w.machine()
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.files[contract.ThemePath])
}

// TestWhoComesIsSignedInWhateverHisComputerDoes: the link is used up, so neither a keeper that does not answer nor anything else of the computer
// keeps somebody out, and the name and the handle are there.
func TestWhoComesIsSignedInWhateverHisComputerDoes(t *testing.T) {
	t.Parallel()
	w := openWith(t, console.Files(), func(o *control.Options) { o.Computers = slowAll{o.Computers} })
	seeded(t, w, themes.All()[0])
	res, said := claimByDay(t, w)
	if res.StatusCode != http.StatusOK || len(res.Cookies()) == 0 {
		t.Errorf("answered with %d %s, and %d cookies", res.StatusCode, said, len(res.Cookies()))
	}
	if !strings.Contains(said, "My Studio") {
		t.Errorf("it is not called so: %s", said)
	}
}

// TestAThemeOfOnesOwnStays: only a computer with the theme that all new ones have begins by day.
func TestAThemeOfOnesOwnStays(t *testing.T) {
	t.Parallel()
	own := themes.All()[0]
	own.Radius++
	for _, theme := range []contract.Theme{own, themes.All()[0]} {
		w := open(t)
		seeded(t, w, theme)
		if res, said := claimByDay(t, w); res.StatusCode != http.StatusOK {
			t.Fatal(res.StatusCode, said)
		}
		if got, fresh := themeOf(w), theme.Radius != own.Radius; strings.Contains(got, `"Day"`) != fresh {
			t.Errorf("a computer with radius %d has now %s", theme.Radius, got)
		}
	}
}
