package gateway_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	openaisdk "github.com/openai/openai-go/v3"
	responsessdk "github.com/openai/openai-go/v3/responses"
	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/anthropic"
	"choir.dev/choiros/internal/gateway/openai"
	"choir.dev/choiros/internal/gateway/provider"
	"choir.dev/choiros/test/modelserver"
)

// anyRequest draws a conversation that may be in any order, with calls that nobody answered, returns that nobody asked for, and blanks.
func anyRequest(r *rapid.T) contract.TurnRequest {
	ids := rapid.SampledFrom([]string{"a", "b", "c", "d e", "é", strings.Repeat("l", 100), "toolu_1"})
	text := rapid.SampledFrom([]string{"x", " ", "\n\t", "words", "ünïcode"})
	part := func(role contract.MessageRole) contract.Part {
		switch n := rapid.IntRange(0, 3).Draw(r, "kind"); {
		case n == 0:
			return contract.Part{Text: text.Draw(r, "text")}
		case role == contract.MessageAssistant && n == 1:
			return contract.Part{Reasoning: &contract.Reasoning{Provider: rapid.SampledFrom([]string{"p", "other"}).Draw(r, "whose"), ID: rapid.SampledFrom([]string{"", "rs_1"}).Draw(r, "rid"),
				Text: text.Draw(r, "thought"), Opaque: rapid.SampledFrom([]string{"", "sig"}).Draw(r, "opaque"), Hidden: rapid.Bool().Draw(r, "hidden")}}
		case role == contract.MessageAssistant:
			return contract.Part{Call: &contract.ToolCall{ID: ids.Draw(r, "id"), Name: rapid.SampledFrom([]string{"read", "no such tool", "é"}).Draw(r, "name"),
				Args: json.RawMessage(rapid.SampledFrom([]string{`{}`, `{"a":1}`, `"x"`, `[]`, `null`}).Draw(r, "args"))}}
		default:
			return contract.Part{Return: &contract.ToolReturn{ID: ids.Draw(r, "id"), Content: rapid.SampledFrom([]string{"", "ok", " "}).Draw(r, "content"), IsError: rapid.Bool().Draw(r, "error")}}
		}
	}
	req := contract.TurnRequest{System: rapid.SampledFrom([]string{"", "be brief"}).Draw(r, "system"), Effort: rapid.SampledFrom([]contract.Effort{"", "none", "high"}).Draw(r, "effort"),
		Tools: []contract.ToolSpec{{Name: "read", Schema: json.RawMessage(`{"type":"object"}`)}}}
	for range rapid.IntRange(1, 8).Draw(r, "messages") {
		m := contract.Message{Role: rapid.SampledFrom([]contract.MessageRole{contract.MessageUser, contract.MessageAssistant}).Draw(r, "role")}
		for range rapid.IntRange(0, 4).Draw(r, "parts") {
			m.Parts = append(m.Parts, part(m.Role))
		}
		req.Messages = append(req.Messages, m)
	}
	return req
}

func anyCall(r *rapid.T) provider.Call {
	req := anyRequest(r)
	if err := req.Validate(); err != nil {
		r.Fatalf("the drawn request is not valid: %v", err)
	}
	before, _ := json.Marshal(req)
	c := provider.Call{Provider: "p", Model: "m", MaxTokens: 5000, Request: req,
		Abilities: provider.Abilities{Reasoning: rapid.SampledFrom([]provider.Reasoning{"", provider.ReasoningAdaptive, provider.ReasoningBudget, provider.ReasoningEffort}).Draw(r, "reasoning")},
	}
	c.Request.Messages = provider.Conversation(req.Messages, "p")
	if after, _ := json.Marshal(req); !bytes.Equal(before, after) {
		r.Fatalf("the request was changed\n%s\n%s", before, after)
	}
	return c
}

// encoded returns what would be sent. It is the same whatever its loop asked before: nothing, this, or what this begins with.
func encoded(r *rapid.T, c provider.Call, body func(provider.Call) ([]byte, error)) []byte {
	b, err := body(c)
	if err != nil {
		r.Fatal(err)
	}
	c.Memo = provider.NewMemo()
	before := c
	before.Request.Messages = c.Request.Messages[:rapid.IntRange(0, len(c.Request.Messages)).Draw(r, "before")]
	before.Dialect.Reasoning = rapid.SampledFrom([]string{"", "thoughts"}).Draw(r, "dialect before")
	if _, err := body(before); err != nil {
		r.Fatal(err)
	}
	for range 2 {
		if again, err := body(c); err != nil || !bytes.Equal(again, b) {
			r.Fatalf("after another request it is (%v)\n%s\nand by itself\n%s", err, again, b)
		}
	}
	return b
}

// strictly decodes what would be sent into the vendor's own type, and fails if anything of it got lost on the way.
func strictly[T any](r *rapid.T, b []byte) (T, []byte) {
	back, err := modelserver.Strictly[T](b)
	if err != nil {
		r.Fatal(err)
	}
	return back, b
}

var takenID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// TestAnyConversationKeepsAnthropicsRules and the ones that follow: whatever a loop posts, if the contract takes it, the services do.
func TestAnyConversationKeepsAnthropicsRules(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := anyCall(r)
		p, sent := strictly[anthropicsdk.MessageNewParams](r, encoded(r, c, anthropic.Body))
		if n := len(p.Messages); n == 0 || p.Messages[0].Role != "user" || p.Messages[n-1].Role != "user" {
			r.Fatalf("the user does not begin and end: %s", sent)
		}
		if n := bytes.Count(sent, []byte(`"cache_control"`)); n > 4 || n == 0 {
			r.Fatalf("%d cache breakpoints: %s", n, sent)
		}
		var open []string
		for i, m := range p.Messages {
			if i > 0 && m.Role == p.Messages[i-1].Role || len(m.Content) == 0 {
				r.Fatalf("roles do not alternate, or a message is empty: %s", sent)
			}
			for j, b := range m.Content {
				switch {
				case b.OfText != nil && strings.TrimSpace(b.OfText.Text) == "":
					r.Fatalf("a blank text: %s", sent)
				case b.OfThinking != nil && b.OfThinking.Signature == "":
					r.Fatalf("a thought without a signature: %s", sent)
				case (b.OfThinking != nil || b.OfRedactedThinking != nil) && j == len(m.Content)-1:
					r.Fatalf("a message ends with a thought: %s", sent)
				case b.OfToolUse != nil:
					if !takenID.MatchString(b.OfToolUse.ID) || !takenID.MatchString(b.OfToolUse.Name) {
						r.Fatalf("a call's id or name: %s", sent)
					}
				case b.OfToolResult != nil && len(b.OfToolResult.Content) > 0 && strings.TrimSpace(b.OfToolResult.Content[0].OfText.Text) == "":
					r.Fatalf("a blank result: %s", sent)
				case b.OfToolResult != nil && (j >= len(open) || open[j] != b.OfToolResult.ToolUseID):
					r.Fatalf("a result is not where its call wants it: %s", sent)
				}
			}
			for j := range open {
				if j >= len(m.Content) || m.Content[j].OfToolResult == nil {
					r.Fatalf("a call is not answered at once: %s", sent)
				}
			}
			open = nil
			for _, b := range m.Content {
				if b.OfToolUse != nil {
					open = append(open, b.OfToolUse.ID)
				}
			}
		}
		if t := p.Thinking.OfEnabled; t != nil && (t.BudgetTokens < 1024 || t.BudgetTokens >= p.MaxTokens) {
			r.Fatalf("a budget of %d: %s", t.BudgetTokens, sent)
		}
		unique(r, regexp.MustCompile(`"id":"([^"]*)"`), sent)
	})
}

func unique(r *rapid.T, id *regexp.Regexp, sent []byte) {
	seen := map[string]bool{}
	for _, m := range id.FindAllSubmatch(sent, -1) {
		if seen[string(m[1])] {
			r.Fatalf("an id twice: %s", sent)
		}
		seen[string(m[1])] = true
	}
}

func TestAnyConversationKeepsTheRulesOfChatCompletions(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := anyCall(r)
		c.Dialect = provider.Dialect{} // the vendor's type has no field of others
		vendor := rapid.Bool().Draw(r, "vendor")
		p, sent := strictly[openaisdk.ChatCompletionNewParams](r, encoded(r, c, func(c provider.Call) ([]byte, error) { return openai.Body(c, vendor) }))
		var open []string
		for _, m := range p.Messages {
			if len(open) > 0 {
				if m.OfTool == nil || m.OfTool.ToolCallID != open[0] {
					r.Fatalf("a call is not answered at once: %s", sent)
				}
				open = open[1:]
				continue
			}
			switch {
			case m.OfTool != nil:
				r.Fatalf("a result without a call: %s", sent)
			case m.OfUser != nil && strings.TrimSpace(m.OfUser.Content.OfString.Value) == "":
				r.Fatalf("a blank message: %s", sent)
			case m.OfAssistant != nil:
				if m.OfAssistant.Content.OfString.Value == "" && len(m.OfAssistant.ToolCalls) == 0 {
					r.Fatalf("an empty message: %s", sent)
				}
				for _, call := range m.OfAssistant.ToolCalls {
					if !takenID.MatchString(call.OfFunction.ID) || !takenID.MatchString(call.OfFunction.Function.Name) || !strings.HasPrefix(call.OfFunction.Function.Arguments, "{") {
						r.Fatalf("a call's id, name or arguments: %s", sent)
					}
					open = append(open, call.OfFunction.ID)
				}
			}
		}
		if len(open) > 0 {
			r.Fatalf("calls at the end that nobody answers: %s", sent)
		}
	})
}

func TestAnyConversationKeepsTheRulesOfResponses(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := anyCall(r)
		p, sent := strictly[responsessdk.ResponseNewParams](r, encoded(r, c, openai.ResponsesBody))
		if p.Store.Value || !p.Store.Valid() {
			r.Fatalf("the service would keep it: %s", sent)
		}
		items := p.Input.OfInputItemList
		open := map[string]bool{}
		for i, item := range items {
			switch {
			case item.OfMessage != nil:
				m := item.OfMessage
				if m.Role != "assistant" && len(open) > 0 {
					r.Fatalf("a call is not answered at once: %s", sent)
				}
				if m.Role == "assistant" && strings.TrimSpace(m.Content.OfString.Value) == "" || m.Role != "assistant" && len(m.Content.OfInputItemContentList) == 0 {
					r.Fatalf("a blank message: %s", sent)
				}
				for _, part := range m.Content.OfInputItemContentList {
					if part.OfInputText != nil && strings.TrimSpace(part.OfInputText.Text) == "" {
						r.Fatalf("a blank text: %s", sent)
					}
				}
			case item.OfReasoning != nil:
				if item.OfReasoning.ID == "" || item.OfReasoning.EncryptedContent.Value == "" {
					r.Fatalf("a thought that the service does not know: %s", sent)
				}
				if i+1 == len(items) || items[i+1].OfReasoning == nil && items[i+1].OfFunctionCall == nil && (items[i+1].OfMessage == nil || items[i+1].OfMessage.Role != "assistant") {
					r.Fatalf("nothing follows from a thought: %s", sent)
				}
			case item.OfFunctionCall != nil:
				f := item.OfFunctionCall
				if !takenID.MatchString(f.CallID) || !takenID.MatchString(f.Name) || !strings.HasPrefix(f.Arguments, "{") {
					r.Fatalf("a call's id, name or arguments: %s", sent)
				}
				open[f.CallID] = true
			case item.OfFunctionCallOutput != nil:
				if id := item.OfFunctionCallOutput.CallID.Value; !open[id] {
					r.Fatalf("a result without a call: %s", sent)
				} else {
					delete(open, id)
				}
			default:
				r.Fatalf("an item of an unknown kind: %s", sent)
			}
		}
		if len(open) > 0 {
			r.Fatalf("calls that nobody answers: %s", sent)
		}
	})
}
