package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// used is what a client by another library found (test/mcp/client.mjs).
type used struct {
	Server                             string
	Tools                              []string
	Written, Read, Outside, Exec       said
	Prompt, Continued, Routed, Unknown said
	Cancelled                          struct{ Cancelled string }
	Progress                           int
	Resource, Page, Nobody             string
}

type said struct {
	Refused bool
	Text    string
}

// library runs the client, and skips the test where its library is not installed.
func library(t *testing.T, env []string, args ...string) used {
	t.Helper()
	dir := filepath.Join(choirtest.Root(), "test", "mcp")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@modelcontextprotocol", "sdk")); errors.Is(err, os.ErrNotExist) {
		t.Skip("the client's library is not installed: make test/mcp/node_modules/.package-lock.json")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{filepath.Join(dir, "client.mjs")}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var found used
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr.String())
	}
	return found
}

// TestALibraryNotOursUsesTheComputer has a client by another library list and call the tools of a
// computer: over HTTP with a token for some of it, and through choir mcp.
func TestALibraryNotOursUsesTheComputer(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	var computers []view.Computer
	in.JSON(t, &computers, "computers")
	at := strings.Replace(in.URL, "console.choir.localhost", "127.0.0.1", 1) + "/api/computers/" + string(computers[0].ID) + "/mcp"
	token := func(may ...string) string {
		args := []string{"tokens", "create", "models"}
		for _, word := range may {
			args = append(args, "--may", word)
		}
		var k view.Token
		in.JSON(t, &k, args...)
		return k.Secret
	}

	got := library(t, nil, "http", at, token("read", "write", "exec", "prompt"), "http://evil.example")
	if got.Server != "choir" || !slices.Contains(got.Tools, "run_show") || slices.Contains(got.Tools, "checkpoint_restore") {
		t.Errorf("%s offers %v", got.Server, got.Tools)
	}
	if got.Written.Refused || !strings.Contains(got.Read.Text, "héllo") || got.Resource != "héllo\n" || !got.Outside.Refused {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(got.Exec.Text, `"stdout":"out\n"`) || !strings.Contains(got.Exec.Text, `"exit_code":3`) {
		t.Errorf("%+v", got.Exec)
	}
	if got.Prompt.Refused || !strings.Contains(got.Prompt.Text, `"status":`) {
		t.Errorf("%+v", got.Prompt)
	}
	if got.Continued.Refused || !got.Unknown.Refused || !strings.Contains(got.Unknown.Text, "continues") {
		t.Errorf("a prompt that goes on from another: %+v; from none: %+v", got.Continued, got.Unknown)
	}
	if said := in.Must(t, "events", "--type", "prompt.submitted", "--json"); got.Routed.Refused || !strings.Contains(said, `"route":"plan"`) || !strings.Contains(said, `"effort":"low"`) {
		t.Errorf("a prompt with a route and an effort: %+v\n%s", got.Routed, said)
	}
	if got.Cancelled.Cancelled == "" {
		t.Error("a call that was cancelled has an answer")
	}
	// Its command has ended with it: the log says so, and it left nothing.
	choirtest.Eventually(t, time.Minute, "the cancelled command to end", func() bool {
		return strings.Contains(in.Must(t, "events", "--type", "command.finished", "--json"), `"exit_code":137`)
	})
	if r, err := in.Run(t.Context(), "files", "cat", "workspace/over"); err != nil || r.Code == 0 {
		t.Errorf("the command went on: %v %+v", err, r)
	}
	if got.Page == "connected" || !strings.Contains(got.Page, "403") && !strings.Contains(got.Page, "pages") {
		t.Errorf("a page: %s", got.Page)
	}
	if got.Nobody == "connected" || got.Nobody == "" {
		t.Errorf("nobody: %s", got.Nobody)
	}

	got = library(t, []string{"CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + token("read", "write")}, "stdio", choirtest.Binary(t), "mcp")
	if got.Server != "choir" || !slices.Contains(got.Tools, "files_write") || slices.Contains(got.Tools, "exec") || slices.Contains(got.Tools, "prompt") {
		t.Errorf("choir mcp offers %v", got.Tools)
	}
	if got.Written.Refused || !strings.Contains(got.Read.Text, "héllo") || got.Resource != "héllo\n" || !got.Outside.Refused {
		t.Errorf("%+v", got)
	}
}
