package e2e_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/control/problem"

	_ "modernc.org/sqlite"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestBadRequests shows that an invalid request is refused at the boundary with the field and the
// reason, and that nothing is appended to the log.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	t.Run("requests", func(t *testing.T) { badRequests(t, in) })
	t.Run("theme", func(t *testing.T) { badTheme(t, in) })
	t.Run("rebuild", func(t *testing.T) { rebuildWhileRunning(t, in) })
	usable(t, in)
}

func badRequests(t *testing.T, in *choirtest.Instance) {
	quiet(t, in)
	before := len(eventsOf(t, in))
	at := "/api/computers/-/"
	big := `"` + strings.Repeat("x", 3<<20) + `"`
	derived := contract.DeriveID(contract.NewID(), "x")
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		field                    string
	}{
		{"no JSON", "POST", at + "prompts", `{"text":`, 0, ""},
		{"another type", "POST", at + "prompts", `{"text": 7}`, 422, "text"},
		{"an unknown field", "POST", at + "prompts", `{"text": "x", "modell": "y"}`, 422, "modell"},
		{"a missing field", "POST", at + "prompts", `{}`, 422, "text"},
		{"an empty prompt", "POST", at + "prompts", `{"text": ""}`, 422, "text"},
		{"a derived id", "POST", at + "prompts", `{"text": "x", "id": "` + derived + `"}`, 422, "id"},
		{"a negative budget", "POST", at + "prompts", `{"text": "x", "budget": {"turns": -1}}`, 422, "budget.turns"},
		{"an oversized prompt", "POST", at + "prompts", `{"text": ` + big + `}`, 0, ""},
		{"no such run", "GET", at + "runs/" + contract.NewID(), "", 404, ""},
		{"no id of a run", "GET", at + "runs/..%2f..%2fx", "", 0, ""},
		{"no such command", "POST", at + "runs/" + contract.NewID() + "/explode", `{}`, 0, ""},
		{"a path outside", "GET", at + "content?path=../secret", "", 422, "path"},
		{"an absolute path", "PUT", at + "content?path=/etc/passwd", "x", 422, "path"},
		{"the history", "PUT", at + "content?path=.git/config", "x", 422, "path"},
		{"a NUL in a path", "PUT", at + "content?path=a%00b", "x", 422, "path"},
		{"an unknown checkpoint", "POST", at + "restore", `{"to": "0000000000000000000000000000000000000000"}`, 404, ""},
		{"a revision's name", "POST", at + "restore", `{"to": "HEAD~1"}`, 422, "to"},
		{"an option as revision", "GET", at + "diff?from=--output%3Dx", "", 422, "from"},
		{"two targets", "POST", at + "restore", `{"to": "0000000", "undo": true}`, 422, "to"},
		{"a URL of files", "POST", at + "add", `{"url": "file:///etc"}`, 422, "url"},
		{"a URL with credentials", "POST", at + "add", `{"url": "https://a:b@example.org/x"}`, 422, "url"},
		{"another's computer", "GET", "/api/computers/aaaaaaaaaaaaaaaa/runs", "", 404, ""},
		{"an unknown endpoint", "GET", "/api/nothing", "", 404, ""},
		{"a list without end", "GET", at + "runs?limit=100000", "", 422, "limit"},
		{"a negative sequence", "GET", at + "events?after=-1", "", 422, "after"},
		{"a secret's bad name", "PUT", "/api/secrets/bad%20name", `{"value": "x"}`, 422, "name"},
		{"a command without words", "POST", at + "exec", `{"argv": []}` + "\n", 0, ""},
		{"no tar", "POST", at + "add/tar?name=x", strings.Repeat("no tar", 1000), 422, ""},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		resp := request(t, ctx, in, c.method, c.path, strings.NewReader(c.body))
		b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		_ = resp.Body.Close()
		cancel()
		var p problem.Problem
		jerr := json.Unmarshal(b, &p)
		switch {
		case err != nil || resp.StatusCode < 400 || resp.StatusCode >= 500:
			t.Errorf("%s: %s %v: %s", c.name, resp.Status, err, b)
		case jerr != nil || p.Code == "" || p.Detail == "" && p.Title == "":
			t.Errorf("%s: %s is no problem: %s", c.name, resp.Status, b)
		case c.status != 0 && resp.StatusCode != c.status, c.field != "" && p.Field != c.field:
			t.Errorf("%s: %s, field %q; want %d and %q: %s", c.name, resp.Status, p.Field, c.status, c.field, b)
		}
	}
	// A wrong token, or none, gets nothing.
	wrong := *in
	wrong.Token = "choir_" + strings.Repeat("a", 43)
	if resp := request(t, t.Context(), &wrong, http.MethodGet, at+"runs", nil); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong token: %s", resp.Status)
	}
	quiet(t, in)
	if after := eventsOf(t, in); len(after) != before {
		var types []string
		for _, e := range after[before:] {
			types = append(types, e.Type)
		}
		t.Errorf("refused requests left events: %v", types)
	}
}

// quiet waits until the log no longer grows by itself (because of a new computer's builds).
func quiet(t *testing.T, in *choirtest.Instance) {
	t.Helper()
	last, since := -1, time.Now()
	choirtest.Eventually(t, time.Minute, "the log is quiet", func() bool {
		if n := len(eventsOf(t, in)); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond
	})
}

func badTheme(t *testing.T, in *choirtest.Instance) {
	const path = "artifacts/system/theme.json"
	good := in.Must(t, "files", "cat", path)
	for _, c := range []struct{ what, theme, field string }{
		{"no JSON", `{"name": `, "theme"},
		{"an unknown field", strings.Replace(good, `"name"`, `"script": "x", "name"`, 1), "script"},
		{"CSS in a colour", replaceColour(t, good, "red;} body{display:none"), "colors"},
		{"a radius out of bounds", replaceKey(t, good, "radius", 99), "radius"},
		{"too long", good + strings.Repeat(" ", contract.MaxTheme), "theme"},
	} {
		before := len(eventsOf(t, in, "theme.refused"))
		put(t, in, path, c.theme)
		var refusals []contract.Event
		choirtest.Eventually(t, 20*time.Second, "the theme with "+c.what+" is refused", func() bool {
			refusals = eventsOf(t, in, "theme.refused")
			return len(refusals) > before
		})
		r := data[contract.ThemeRefused](t, refusals[len(refusals)-1])
		if !strings.Contains(r.Field, c.field) || r.Reason == "" {
			t.Errorf("%s: refused with %+v; want the field %s", c.what, r, c.field)
		}
	}
	changed := eventsOf(t, in, "theme.changed")
	if len(changed) > 1 {
		t.Errorf("a refused theme came into force: %d changes", len(changed))
	}
	put(t, in, path, replaceKey(t, good, "name", "Another"))
	choirtest.Eventually(t, 20*time.Second, "a good theme comes into force", func() bool {
		all := eventsOf(t, in, "theme.changed")
		return len(all) > len(changed) && data[contract.ThemeChanged](t, all[len(all)-1]).Theme.Name == "Another"
	})
}

func replaceKey(t *testing.T, theme, key string, value any) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(theme), &v); err != nil {
		t.Fatal(err)
	}
	v[key] = value
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func replaceColour(t *testing.T, theme, value string) string {
	t.Helper()
	var v struct {
		Colors map[string]any `json:"colors"`
	}
	if err := json.Unmarshal([]byte(theme), &v); err != nil {
		t.Fatal(err)
	}
	v.Colors["accent"] = value
	return replaceKey(t, theme, "colors", v.Colors)
}

// rebuildWhileRunning replaces the state file while it is in use.
func rebuildWhileRunning(t *testing.T, in *choirtest.Instance) {
	quiet(t, in)
	states, err := filepath.Glob(filepath.Join(in.Data, "computers", "*", "state.sqlite"))
	if err != nil || len(states) != 1 {
		t.Fatalf("%v %v", states, err)
	}
	db, err := sql.Open("sqlite", "file:"+states[0]+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range []string{"UPDATE computer SET name = 'Impostor'", "DELETE FROM checkpoints", "UPDATE events SET type = 'prompt.submitted' WHERE seq = 2"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var r view.Rebuilt
	res, err := in.Run(ctx, "rebuild", "--check", "--json")
	if err != nil || res.Code != 1 || json.Unmarshal([]byte(res.Stdout), &r) != nil || r.Equal || len(r.Differences) != 3 {
		t.Fatalf("check of a damaged state: %v %+v", err, res)
	}
	in.JSON(t, &r, "rebuild")
	if r.Equal || len(r.Differences) != 3 || r.Check {
		t.Errorf("rebuild: %+v", r)
	}
	if in.JSON(t, &r, "rebuild", "--check"); !r.Equal {
		t.Errorf("after the rebuild: %+v", r)
	}
	var c []checkpoint
	if in.JSON(t, &c, "checkpoints"); len(c) == 0 {
		t.Error("the checkpoints did not come back")
	}
	if _, err := os.Stat(states[0] + ".replace"); err == nil {
		t.Error("the new file was left behind")
	}
}

// TestBadStateFile shows that a state file that can't be read is moved aside and made again from
// the log.
func TestBadStateFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	in := choirtest.Start(t, choirtest.Options{Data: dir})
	put(t, in, "workspace/a.txt", "a")
	in.Must(t, "checkpoint", "-m", "named")
	want := len(eventsOf(t, in))
	in.Stop(t)
	states, _ := filepath.Glob(filepath.Join(dir, "computers", "*", "state.sqlite"))
	if len(states) != 1 {
		t.Fatalf("got %v", states)
	}
	if err := os.WriteFile(states[0], bytes.Repeat([]byte("no database "), 4000), 0o600); err != nil {
		t.Fatal(err)
	}
	in = choirtest.Start(t, choirtest.Options{Data: dir})
	var all []checkpoint
	in.JSON(t, &all, "checkpoints")
	named := false
	for _, c := range all {
		named = named || c.Message == "named"
	}
	if !named || len(eventsOf(t, in)) < want {
		t.Errorf("the state did not come back: %+v", all)
	}
	usable(t, in)
}
