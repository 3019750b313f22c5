package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/identity"
)

// bearer adds a token to each request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// mcpAt is where a computer is offered to models.
func mcpAt(cid contract.CID) string { return "/api/computers/" + string(cid) + "/mcp" }

// models opens a session over the Model Context Protocol with a token.
func (w *world) models(token string, cid contract.CID) (*sdk.ClientSession, error) {
	w.t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	ses, err := c.Connect(w.t.Context(), &sdk.StreamableClientTransport{
		Endpoint: "http://" + w.bareHost() + mcpAt(cid), MaxRetries: -1, DisableStandaloneSSE: true,
		HTTPClient: &http.Client{Transport: bearer{token, http.DefaultTransport}},
	}, nil)
	if err == nil {
		w.t.Cleanup(func() { _ = ses.Close() }) // the test may have ended it
	}
	return ses, err
}

func toolNames(t *testing.T, ses *sdk.ClientSession) []string {
	t.Helper()
	list, err := ses.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, tool := range list.Tools {
		out = append(out, tool.Name)
	}
	return out
}

// called returns what a tool said, and whether it refused.
func called(t *testing.T, ses *sdk.ClientSession, name string, args map[string]any) (string, bool) {
	t.Helper()
	res, err := ses.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return err.Error(), true
	}
	text, ok := res.Content[0].(*sdk.TextContent)
	if !ok {
		t.Fatalf("%s answers with %T", name, res.Content[0])
	}
	return text.Text, res.IsError
}

// TestModelsAreOfferedWhatTheirTokenIsFor shows that a session lists the tools of its token's
// capabilities and no others, and that a call is decided by the API, as every other.
func TestModelsAreOfferedWhatTheirTokenIsFor(t *testing.T) {
	w := open(t)
	m := w.machine()
	p := person{User: w.owner}
	for _, c := range []struct {
		may   []contract.Capability
		tools []string
		not   []string
	}{
		{[]contract.Capability{"read"}, []string{"run_list", "files_list", "files_read", "document_get", "checkpoint_diff"}, []string{"prompt", "exec", "files_write", "checkpoint_restore", "run_cancel"}},
		{[]contract.Capability{"prompt"}, []string{"prompt", "run_cancel", "run_steer", "run_answer"}, []string{"run_list", "exec", "files_read"}},
		{[]contract.Capability{"read", "exec", "restore"}, []string{"exec", "checkpoint_restore", "checkpoint_create"}, []string{"prompt", "files_write"}},
	} {
		ses, err := w.models(w.lent(p, c.may, time.Time{}), m.cid)
		if err != nil {
			t.Fatal(err)
		}
		got := toolNames(t, ses)
		for _, name := range c.tools {
			if !slices.Contains(got, name) {
				t.Errorf("for %v there is no %s among %v", c.may, name, got)
			}
		}
		for _, name := range c.not {
			if slices.Contains(got, name) {
				t.Errorf("for %v there is %s", c.may, name)
			}
			if said, refused := called(t, ses, name, map[string]any{}); !refused {
				t.Errorf("for %v %s answers: %s", c.may, name, said)
			}
		}
	}
}

// TestModelsCallTheAPI calls tools: what is asked reaches the computer in the caller's name, and
// what is wrong is said to the model.
func TestModelsCallTheAPI(t *testing.T) {
	w := open(t)
	ses, err := w.models(w.token, w.machine().cid)
	if err != nil {
		t.Fatal(err)
	}
	said, refused := called(t, ses, "prompt", map[string]any{"text": "make it blue"})
	var acted struct{ Run, ID string }
	if refused || json.Unmarshal([]byte(said), &acted) != nil || acted.Run == "" {
		t.Fatalf("%v %s", refused, said)
	}
	if said, refused = called(t, ses, "run_list", map[string]any{"limit": 10}); refused || !strings.Contains(said, `"runs":[`) || !strings.Contains(said, `"more":`) {
		t.Errorf("%v %s", refused, said)
	}
	for name, args := range map[string]map[string]any{
		"run_show": {"run": "no-run"}, "files_list": {"path": "../x"}, "files_read": {"path": "/etc/passwd"}, "document_get": {"document": "x", "other": 1}, "checkpoint_diff": {"to": 7}, "prompt": {"text": "x", "wait": 10000},
	} {
		if said, refused := called(t, ses, name, args); !refused || said == "" {
			t.Errorf("%s %v: %v %s", name, args, refused, said)
		}
	}
	text := strings.Repeat("é", 50_000)
	if said, refused := called(t, ses, "files_write", map[string]any{"path": "workspace/a.txt", "content": text}); refused {
		t.Errorf("%v %s", refused, said)
	}
	var got strings.Builder
	for more := true; more; {
		said, refused := called(t, ses, "files_read", map[string]any{"path": "workspace/a.txt", "offset": got.Len(), "limit": 30_001})
		var part struct {
			Content string
			More    bool
			Size    int
		}
		if err := json.Unmarshal([]byte(said), &part); err != nil || refused || part.Size != len(text) || part.Content == "" {
			t.Fatalf("%v %.200s", err, said)
		}
		got.WriteString(part.Content)
		more = part.More
	}
	if got.String() != text {
		t.Errorf("a file of %d bytes is read as one of %d", len(text), got.Len())
	}
	if said, refused := called(t, ses, "exec", map[string]any{"argv": []string{"echo", "hello"}}); refused || !strings.Contains(said, `"stdout":"hello\n"`) {
		t.Errorf("%v %s", refused, said)
	}
	for argv, says := range map[string]string{"missing": "no box could be opened", "panic": "Something went wrong inside"} {
		if said, refused := called(t, ses, "exec", map[string]any{"argv": []string{argv}}); !refused || !strings.Contains(said, says) {
			t.Errorf("%v %s", refused, said)
		}
	}
	res, err := ses.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "choir://file/workspace/a.txt"})
	if err != nil || len(res.Contents) != 1 || !strings.HasPrefix(text, res.Contents[0].Text) || res.Contents[0].Text == "" {
		t.Errorf("%v %+v", err, res)
	}
	if _, err := ses.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "choir://file/../secret"}); err == nil {
		t.Error("a resource is outside of the workspace")
	}
	// What only reads says so, and what may take something away too.
	list, err := ses.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		reads := strings.HasSuffix(tool.Name, "_list") || strings.HasSuffix(tool.Name, "_show") || strings.HasSuffix(tool.Name, "_read") || slices.Contains([]string{"document_get", "checkpoint_diff"}, tool.Name)
		if tool.Annotations.ReadOnlyHint != reads {
			t.Errorf("%s: %+v", tool.Name, tool.Annotations)
		}
		if destroys := slices.Contains([]string{"prompt", "exec", "files_write", "checkpoint_restore", "run_cancel"}, tool.Name); !reads && *tool.Annotations.DestructiveHint != destroys {
			t.Errorf("%s: %+v", tool.Name, tool.Annotations)
		}
	}
}

// bareHost is the port without a name.
func (w *world) bareHost() string { return fmt.Sprintf("127.0.0.1:%d", w.port) }

// post sends a message over the protocol, as a client that is not the SDK's.
func (w *world) post(host string, cid contract.CID, message string, headers ...string) answer {
	w.t.Helper()
	return w.ask("POST", host, mcpAt(cid), message, append(headers, "Content-Type: application/json", "Accept: application/json, text/event-stream")...)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

// TestWhoModelsMayNotCallFor shows who gets no session: nobody without a token, no page, no other
// host name, nobody who is no member; and that a session is of one token and one computer.
func TestWhoModelsMayNotCallFor(t *testing.T) {
	w := open(t)
	m, other := w.machine(), w.computer("Other", w.owner.ID)
	token := "Authorization: Bearer " + w.token
	stranger, err := w.ids.NewAccount(context.Background(), "Stranger", nil)
	check(t, err)
	foreign := "Authorization: Bearer " + w.lent(person{User: stranger}, contract.TokenCapabilities, time.Time{})
	if res := w.post(w.bareHost(), m.cid, initialize, token); res.StatusCode != http.StatusOK || res.Header.Get("Mcp-Session-Id") == "" {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	for _, c := range []struct {
		what    string
		host    string
		cid     contract.CID
		headers []string
		status  int
	}{
		{"nobody", w.bareHost(), m.cid, nil, 401},
		{"a wrong token", w.bareHost(), m.cid, []string{"Authorization: Bearer nothing"}, 401},
		{"a page with a token", w.bareHost(), m.cid, []string{token, "Origin: http://evil.example"}, 403},
		{"the console's page with a token", hostOf(w.console()), m.cid, []string{token, "Origin: " + w.console()}, 403},
		{"a page on another name", "evil.example:7700", m.cid, []string{token}, 421},
		{"a desktop", hostOf(w.desktop("studio")), m.cid, []string{token}, 0},
		{"a token of nobody here", w.bareHost(), m.cid, []string{foreign}, 404},
		{"no computer", w.bareHost(), "aaaaaaaaaaaaaaaa", []string{token}, 404},
	} {
		res := w.post(c.host, c.cid, initialize, c.headers...)
		if c.status != 0 && res.StatusCode != c.status || res.StatusCode == 200 || res.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: %d %s", c.what, res.StatusCode, res.body)
		}
	}

	id := "Mcp-Session-Id: " + w.post(w.bareHost(), m.cid, initialize, token).Header.Get("Mcp-Session-Id")
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	initialized := `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	if res := w.post(w.bareHost(), m.cid, initialized, token, id); res.StatusCode/100 != 2 {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	if res := w.post(w.bareHost(), m.cid, list, token, id); res.StatusCode != 200 || !strings.Contains(res.body, "run_list") {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	if res := w.post(w.bareHost(), m.cid, list, token, id); strings.Contains(res.body, `"public"`) {
		t.Errorf("what one token is offered may be kept for others: %s", res.body)
	}
	// A member's other token does not use the session, nor does the session use another computer.
	w.join(person{User: stranger}, m.cid, grant.Editor)
	if res := w.post(w.bareHost(), m.cid, list, foreign, id); res.StatusCode != 404 {
		t.Errorf("another token uses a session: %d %s", res.StatusCode, res.body)
	}
	if res := w.post(w.bareHost(), other.cid, list, token, id); res.StatusCode != 404 {
		t.Errorf("a session is used for another computer: %d %s", res.StatusCode, res.body)
	}
	if res := w.post(w.bareHost(), m.cid, list, token, "Mcp-Session-Id: guessed"); res.StatusCode != 404 {
		t.Errorf("a session that there is not: %d %s", res.StatusCode, res.body)
	}
}

// TestSessionsOfModelsAreBounded opens more sessions than one token may have.
func TestSessionsOfModelsAreBounded(t *testing.T) {
	w := open(t)
	token := "Authorization: Bearer " + w.token
	refused := false
	for range 17 {
		res := w.post(w.bareHost(), w.machine().cid, initialize, token)
		refused = res.StatusCode == http.StatusTooManyRequests
		if refused != (res.StatusCode != 200) {
			t.Fatalf("%d %s", res.StatusCode, res.body)
		}
	}
	if !refused {
		t.Error("a token opens any number of sessions")
	}
	// What is no beginning leaves nothing behind.
	_, secret, err := w.ids.NewToken(t.Context(), w.owner.ID, "more", identity.TokenScope{})
	check(t, err)
	for range 40 {
		if res := w.post(w.bareHost(), w.machine().cid, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Authorization: Bearer "+secret); res.StatusCode == http.StatusTooManyRequests {
			t.Fatal("a request without a session counts as one")
		}
	}
}

// TestARevokedTokenLosesItsSession shows that a session does nothing more for a token that is revoked.
func TestARevokedTokenLosesItsSession(t *testing.T) {
	w := open(t)
	k, secret, err := w.ids.NewToken(t.Context(), w.owner.ID, "lent", identity.TokenScope{})
	check(t, err)
	ses, err := w.models(secret, w.machine().cid)
	if err != nil {
		t.Fatal(err)
	}
	if said, refused := called(t, ses, "run_list", nil); refused {
		t.Fatal(said)
	}
	if res := w.ask("DELETE", w.bareHost(), "/api/tokens/"+k.ID, "", "Authorization: Bearer "+w.token); res.StatusCode/100 != 2 {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	if said, refused := called(t, ses, "run_list", nil); !refused {
		t.Errorf("a revoked token lists runs: %s", said)
	}
}
