package acp

import (
	"context"
	"encoding/json"
	"strings"
)

// Open greets the program and begins a session in a directory of its box. version is ours.
func (c *Conn) Open(ctx context.Context, version, dir string) error {
	var hello struct {
		Version int `json:"protocolVersion"`
	}
	nothing := map[string]any{"fs": map[string]bool{"readTextFile": false, "writeTextFile": false}, "terminal": false}
	err := c.call(ctx, "initialize", map[string]any{"protocolVersion": Version, "clientCapabilities": nothing,
		"clientInfo": map[string]string{"name": "choir", "title": "ChoirOS", "version": version}}, &hello)
	if err != nil {
		return err
	}
	if hello.Version != Version {
		return broken("it speaks version %d of the protocol, not %d", hello.Version, Version)
	}
	var session struct {
		ID string `json:"sessionId"`
	}
	if err := c.call(ctx, "session/new", map[string]any{"cwd": dir, "mcpServers": []any{}}, &session); err != nil {
		return err
	}
	if session.ID == "" || len(session.ID) > 1024 {
		return broken("its session has no usable id: %q", quoted([]byte(session.ID)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = session.ID
	return nil
}

// Stop says why a turn ended.
type Stop string

// How a turn ends.
const (
	EndTurn   Stop = "end_turn"
	Length    Stop = "max_tokens"
	Requests  Stop = "max_turn_requests"
	Refusal   Stop = "refusal"
	Cancelled Stop = "cancelled"
)

// Prompt has the program do a turn and waits for its end.
func (c *Conn) Prompt(ctx context.Context, text string) (Stop, error) {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	var end struct {
		Stop Stop `json:"stopReason"`
	}
	if err := c.call(ctx, "session/prompt", map[string]any{"sessionId": session, "prompt": []any{map[string]string{"type": "text", "text": text}}}, &end); err != nil {
		return "", err
	}
	switch end.Stop {
	case EndTurn, Length, Requests, Refusal, Cancelled:
		return end.Stop, nil
	}
	return "", broken("its turn ends with %q, which is no reason", quoted([]byte(end.Stop)))
}

// Cancel asks the program to end the turn under way. Prompt then returns Cancelled.
func (c *Conn) Cancel() error {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	params, err := json.Marshal(map[string]string{"sessionId": session})
	if err != nil {
		return err
	}
	return c.send(message{Method: "session/cancel", Params: params})
}

// Kind says what an Update is about.
type Kind string

// What a program reports.
const (
	Said Kind = "said" // a piece of its answer
	Call Kind = "call" // one of its tool calls
	Plan Kind = "plan" // its plan, whole
)

// Status is where a tool call stands.
type Status string

// Where a call stands; empty: as before.
const (
	Pending   Status = "pending"
	Running   Status = "in_progress"
	Completed Status = "completed"
	Failed    Status = "failed"
)

// Update is something that a program reports of a turn.
type Update struct {
	Kind   Kind
	Text   string // what it says, the plan's lines, or the call's title; of a call that was told of before it may be empty
	Call   string // the call's id
	Status Status
}

// Limits of an update; what is longer is cut.
const (
	maxText    = 16 << 10
	maxID      = 256
	maxEntries = 100
)

// update is the form in which a program reports.
type update struct {
	What    string          `json:"sessionUpdate"`
	Content json.RawMessage `json:"content"`
	Call    string          `json:"toolCallId"`
	Title   string          `json:"title"`
	Status  string          `json:"status"`
	Entries []struct {
		Content string `json:"content"`
		Status  string `json:"status"`
	} `json:"entries"`
}

// read returns what is understood of an update.
func (u update) read() (Update, bool) {
	switch u.What {
	case "agent_message_chunk":
		var c struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if json.Unmarshal(u.Content, &c) != nil || c.Type != "text" {
			return Update{}, false
		}
		return Update{Kind: Said, Text: strings.ToValidUTF8(c.Text, "\uFFFD")}, c.Text != ""
	case "tool_call", "tool_call_update":
		out := Update{Kind: Call, Text: quoted([]byte(u.Title)), Call: cut(u.Call, maxID), Status: Status(u.Status)}
		switch out.Status {
		case "", Pending, Running, Completed, Failed:
		default:
			out.Status = ""
		}
		return out, out.Call != ""
	case "plan":
		var b strings.Builder
		for i, e := range u.Entries {
			if i == maxEntries || b.Len() > maxText {
				break
			}
			b.WriteString("[" + quoted([]byte(e.Status)) + "] " + quoted([]byte(e.Content)) + "\n")
		}
		return Update{Kind: Plan, Text: cut(b.String(), maxText)}, b.Len() > 0
	}
	return Update{}, false
}

// cut is the beginning of a text, in whole characters.
func cut(s string, most int) string { return strings.ToValidUTF8(s[:min(len(s), most)], "") }
