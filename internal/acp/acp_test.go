package acp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/acp"
	"choir.dev/choiros/internal/fault"
)

// program plays a program: it reads requests, and answers as the script says. "" in the script leaves it at that.
func program(t *testing.T, answer func(method string, id int) []string, o acp.Options) *acp.Conn {
	t.Helper()
	in, toProgram := io.Pipe()
	fromProgram, out := io.Pipe()
	c := acp.Connect(fromProgram, toProgram, o)
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			var m struct {
				ID     int
				Method string
			}
			_ = json.Unmarshal(lines.Bytes(), &m) // what is no request has no method
			for _, line := range answer(m.Method, m.ID) {
				if _, err := io.WriteString(out, line); err != nil {
					return
				}
			}
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return c
}

func result(id int, json string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, json) + "\n"
}

// polite greets and opens a session, and has turn say what happens in a turn.
func polite(turn func(id int) []string) func(string, int) []string {
	return func(method string, id int) []string {
		switch method {
		case "initialize":
			return []string{result(id, `{"protocolVersion":1}`)}
		case "session/new":
			return []string{result(id, `{"sessionId":"s"}`)}
		case "session/prompt":
			return turn(id)
		}
		return nil
	}
}

func update(session, json string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":%s}}`, session, json) + "\n"
}

// TestATurnIsReported in order, with what is understood of it and nothing of another session.
func TestATurnIsReported(t *testing.T) {
	var heard []string
	c := program(t, polite(func(id int) []string {
		return []string{"\n", update("s", `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hello"}}`),
			update("other", `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"not ours"}}`),
			update("s", `{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"x"}}`),
			update("s", `{"sessionUpdate":"of_tomorrow","content":[1]}`), `{"jsonrpc":"2.0","method":"_vendor/thing","params":7}` + "\n",
			update("s", `{"sessionUpdate":"tool_call","toolCallId":"c","title":"run\u001b[2J it","status":"in_progress","content":[{"type":"diff"}]}`),
			update("s", `{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed"}`),
			update("s", `{"sessionUpdate":"plan","entries":[{"content":"one","status":"pending"}]}`),
			result(id, `{"stopReason":"end_turn"}`)}
	}), acp.Options{Update: func(u acp.Update) error {
		heard = append(heard, fmt.Sprint(u.Kind, "/", u.Call, "/", u.Status, "/", u.Text))
		return nil
	}})
	if err := c.Open(t.Context(), "1", "/computer"); err != nil {
		t.Fatal(err)
	}
	stop, err := c.Prompt(t.Context(), "go")
	if err != nil || stop != acp.EndTurn {
		t.Fatalf("%q %v", stop, err)
	}
	if got, want := strings.Join(heard, "|"), "said///Hello|call/c/in_progress/run [2J it|call/c/completed/|plan///[pending] one\n"; got != want {
		t.Errorf("heard %q; want %q", got, want)
	}
}

// TestWhatAProgramMayNotSend ends the connection, with a sentence that says what it was.
func TestWhatAProgramMayNotSend(t *testing.T) {
	blank := strings.Repeat(" ", 63<<10) + "\n"
	flood := strings.Repeat(update("s", `{"sessionUpdate":"of_tomorrow"}`), 1000)
	for name, c := range map[string]struct {
		says string
		turn func(id int) []string
	}{
		"a log line":        {`no message of the protocol: "Loading`, func(int) []string { return []string{"Loading\n"} }},
		"another version":   {"no message of the protocol", func(int) []string { return []string{`{"jsonrpc":"1.0","id":1,"result":{}}` + "\n"} }},
		"a list":            {"no message of the protocol", func(int) []string { return []string{"[{}]\n"} }},
		"a long line":       {"a line of more than", func(int) []string { return []string{strings.Repeat("x", 9<<20)} }},
		"an answer twice":   {"was not asked, or twice", func(int) []string { return []string{result(1, `{}`)} }},
		"an answer to none": {"was not asked, or twice", func(int) []string { return []string{`{"jsonrpc":"2.0","id":"x","result":{}}` + "\n"} }},
		"an id of a list":   {"an id that is none", func(int) []string { return []string{`{"jsonrpc":"2.0","id":[1],"method":"fs/read_text_file"}` + "\n"} }},
		"no update":         {"what is no update", func(int) []string { return []string{`{"jsonrpc":"2.0","method":"session/update","params":"x"}` + "\n"} }},
		"no reason":         {"which is no reason", func(id int) []string { return []string{result(id, `{"stopReason":"because"}`)} }},
		"no answer":         {"its answer to session/prompt is none", func(id int) []string { return []string{result(id, `7`)} }},
		"an error": {"with the error -32000: log in", func(id int) []string {
			return []string{fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"log in"}}`, id) + "\n"}
		}},
		"a flood": {"more than 1048576 messages", func(int) []string {
			var out []string
			for range 1100 {
				out = append(out, flood)
			}
			return out
		}},
		"a gigabyte": {"more than 1073741824 bytes", func(id int) []string {
			out := slices.Repeat([]string{blank}, 1<<30/len(blank)+1)
			return append(out, result(id, `{"stopReason":"end_turn"}`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := program(t, polite(c.turn), acp.Options{Update: func(acp.Update) error { return nil }})
			if err := conn.Open(t.Context(), "1", "/computer"); err != nil {
				t.Fatal(err)
			}
			if stop, err := conn.Prompt(t.Context(), "go"); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q %v; want %q", stop, err, c.says)
			}
		})
	}
}

// TestWhatIsNotRead ends a program that asks without reading the answers.
func TestWhatIsNotRead(t *testing.T) {
	in, toProgram := io.Pipe()
	fromProgram, out := io.Pipe()
	c := acp.Connect(fromProgram, toProgram, acp.Options{})
	t.Cleanup(c.Close)
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := io.WriteString(out, `{"jsonrpc":"2.0","id":1,"method":"terminal/create"}`+"\n"); err != nil {
				done <- err
				return
			}
		}
	}()
	if err := c.Open(t.Context(), "1", "/computer"); err == nil || !strings.Contains(err.Error(), "does not read") {
		t.Error(err)
	}
	<-done
	_ = in.Close()
}

// TestAProgramIsLeft when whoever waits for it has gone, when it ends, and when what it reports is refused.
func TestAProgramIsLeft(t *testing.T) {
	silent := program(t, polite(func(int) []string { return nil }), acp.Options{})
	if err := silent.Open(t.Context(), "1", "/computer"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("time is up"))
	if _, err := silent.Prompt(ctx, "go"); err == nil || err.Error() != "time is up" {
		t.Error(err)
	}
	refused := program(t, polite(func(id int) []string {
		return []string{update("s", `{"sessionUpdate":"tool_call","toolCallId":"c","title":"x"}`), result(id, `{"stopReason":"end_turn"}`)}
	}), acp.Options{Update: func(acp.Update) error { return fault.New("", fault.Exhausted, "", errors.New("no more calls")) }})
	if err := refused.Open(t.Context(), "1", "/computer"); err != nil {
		t.Fatal(err)
	}
	if _, err := refused.Prompt(t.Context(), "go"); !fault.Is(err, fault.Exhausted) {
		t.Error(err)
	}
}
