package inward_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	openai "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/gateway/inward"
)

const token = "choir-box-of-this-test"

// played answers turns in the gateway's place, and keeps the requests.
type played struct {
	mu       sync.Mutex
	requests []contract.TurnRequest
	scopes   []gateway.Scope
	turn     func(ctx context.Context, req contract.TurnRequest, onDelta func(string)) (contract.Turn, error)
}

func (p *played) Turn(ctx context.Context, s gateway.Scope, req contract.TurnRequest, onDelta func(string)) (contract.Turn, error) {
	p.mu.Lock()
	p.requests, p.scopes = append(p.requests, req), append(p.scopes, s)
	turn := p.turn
	p.mu.Unlock()
	return turn(ctx, req, onDelta)
}

func (p *played) last(t testing.TB) contract.TurnRequest {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requests) == 0 {
		t.Fatal("no call reached the gateway")
	}
	return p.requests[len(p.requests)-1]
}

// answers has every call answered by a turn, whose deltas come first.
func (p *played) answers(turn contract.Turn, deltas ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn = func(_ context.Context, _ contract.TurnRequest, onDelta func(string)) (contract.Turn, error) {
		if onDelta != nil {
			for _, d := range deltas {
				onDelta(d)
			}
		}
		return turn, nil
	}
}

func (p *played) fails(te *contract.TurnError, deltas ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn = func(_ context.Context, _ contract.TurnRequest, onDelta func(string)) (contract.Turn, error) {
		if onDelta != nil {
			for _, d := range deltas {
				onDelta(d)
			}
		}
		return contract.Turn{}, te
	}
}

// serve serves what a box's programs reach, at an address.
func serve(t testing.TB, p *played, change func(*inward.Options)) string {
	t.Helper()
	o := inward.Options{Turner: p, Token: token, Scope: gateway.Scope{CID: contract.NewCID(), Run: contract.NewID(), Task: contract.NewID(), Role: "associate", Model: "the/hosts"},
		Model: func(context.Context) (string, string, error) { return "the", "hosts", nil },
		Keep: func(_ context.Context, r io.Reader) (contract.BlobRef, int64, error) {
			b, err := io.ReadAll(r)
			return contract.NewBlobRef(sum(b)), int64(len(b)), err
		}}
	if change != nil {
		change(&o)
	}
	s := httptest.NewServer(inward.Handler(o))
	t.Cleanup(s.Close)
	return s.URL
}

// said is an answer as a vendor's client has it.
type said struct {
	text     string
	calls    []contract.ToolCall
	thoughts []string
	stop     string
	in, out  int64
}

// wire asks with a vendor's own client.
type wire struct {
	name string
	ask  func(ctx context.Context, url string, stream bool) (said, error)
}

func anthropicClient(url, key string) anthropic.Client {
	return anthropic.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey(key), anthropicoption.WithMaxRetries(0))
}

func openaiClient(url, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func askMessages(ctx context.Context, url string, stream bool, p anthropic.MessageNewParams) (*anthropic.Message, error) {
	c := anthropicClient(url, token)
	if !stream {
		return c.Messages.New(ctx, p)
	}
	s := c.Messages.NewStreaming(ctx, p)
	defer s.Close()
	var m anthropic.Message
	for s.Next() {
		if err := m.Accumulate(s.Current()); err != nil {
			return nil, err
		}
	}
	return &m, s.Err()
}

func askCompletions(ctx context.Context, url string, stream bool, p openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) {
	c := openaiClient(url, token)
	if !stream {
		return c.Chat.Completions.New(ctx, p)
	}
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	s := c.Chat.Completions.NewStreaming(ctx, p)
	defer s.Close()
	var acc openai.ChatCompletionAccumulator
	for s.Next() {
		if !acc.AddChunk(s.Current()) {
			return nil, errors.New("a chunk does not belong to the completion")
		}
	}
	return &acc.ChatCompletion, s.Err()
}

func askResponses(ctx context.Context, url string, stream bool, p responses.ResponseNewParams) (*responses.Response, error) {
	c := openaiClient(url, token)
	if !stream {
		return c.Responses.New(ctx, p)
	}
	s := c.Responses.NewStreaming(ctx, p)
	defer s.Close()
	var done *responses.Response
	var text, args strings.Builder
	next := int64(0)
	for s.Next() {
		e := s.Current()
		if e.SequenceNumber != next {
			return nil, fmt.Errorf("event %s has number %d, not %d", e.Type, e.SequenceNumber, next)
		}
		next++
		switch e.Type {
		case "response.output_text.delta":
			text.WriteString(e.Delta)
		case "response.function_call_arguments.delta":
			args.WriteString(e.Delta)
		case "response.completed", "response.incomplete":
			r := e.Response
			done = &r
		case "response.failed":
			return nil, fmt.Errorf("failed: %s: %s", e.Response.Error.Code, e.Response.Error.Message)
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if done == nil {
		return nil, errors.New("the stream ended before its response was complete")
	}
	all := ""
	for _, it := range done.Output {
		all += it.Arguments.OfString
	}
	if done.OutputText() != text.String() || all != args.String() {
		return nil, fmt.Errorf("the deltas are %q and %q, the response has %q and %q", text.String(), args.String(), done.OutputText(), all)
	}
	return done, nil
}

func ofMessage(m *anthropic.Message) said {
	s := said{stop: string(m.StopReason), in: m.Usage.InputTokens + m.Usage.CacheReadInputTokens, out: m.Usage.OutputTokens}
	for _, b := range m.Content {
		switch b.Type {
		case "text":
			s.text += b.Text
		case "tool_use":
			s.calls = append(s.calls, contract.ToolCall{ID: b.ID, Name: b.Name, Args: b.Input})
		case "thinking":
			s.thoughts = append(s.thoughts, b.Thinking)
		case "redacted_thinking":
			s.thoughts = append(s.thoughts, "")
		}
	}
	return s
}

func ofCompletion(c *openai.ChatCompletion) said {
	if len(c.Choices) != 1 {
		return said{stop: fmt.Sprintf("%d choices", len(c.Choices))}
	}
	s := said{text: c.Choices[0].Message.Content, stop: c.Choices[0].FinishReason, in: c.Usage.PromptTokens, out: c.Usage.CompletionTokens}
	for _, call := range c.Choices[0].Message.ToolCalls {
		s.calls = append(s.calls, contract.ToolCall{ID: call.ID, Name: call.Function.Name, Args: json.RawMessage(call.Function.Arguments)})
	}
	return s
}

func ofResponse(r *responses.Response) said {
	s := said{text: r.OutputText(), stop: string(r.Status) + r.IncompleteDetails.Reason, in: r.Usage.InputTokens, out: r.Usage.OutputTokens}
	for _, it := range r.Output {
		switch it.Type {
		case "function_call":
			s.calls = append(s.calls, contract.ToolCall{ID: it.CallID, Name: it.Name, Args: json.RawMessage(it.Arguments.OfString)})
		case "reasoning":
			thought := ""
			for _, part := range it.Summary {
				thought += part.Text
			}
			s.thoughts = append(s.thoughts, thought)
		}
	}
	return s
}

// wires ask the same with each vendor's client.
var wires = []wire{
	{"messages", func(ctx context.Context, url string, stream bool) (said, error) {
		m, err := askMessages(ctx, url, stream, anthropic.MessageNewParams{Model: "claude-whatever", MaxTokens: 500, System: []anthropic.TextBlockParam{{Text: "be brief"}},
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
			Tools:    []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "read", Description: anthropic.String("reads"), InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"path": map[string]any{"type": "string"}}}}}}})
		if err != nil {
			return said{}, err
		}
		return ofMessage(m), nil
	}},
	{"completions", func(ctx context.Context, url string, stream bool) (said, error) {
		c, err := askCompletions(ctx, url, stream, openai.ChatCompletionNewParams{Model: "gpt-whatever", MaxCompletionTokens: openai.Int(500),
			Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("be brief"), openai.UserMessage("hello")},
			Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "read", Description: openai.String("reads"),
				Parameters: map[string]any{"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string"}}}})}})
		if err != nil {
			return said{}, err
		}
		return ofCompletion(c), nil
	}},
	{"responses", func(ctx context.Context, url string, stream bool) (said, error) {
		r, err := askResponses(ctx, url, stream, responses.ResponseNewParams{Model: "gpt-whatever", MaxOutputTokens: openai.Int(500), Instructions: openai.String("be brief"),
			Store: openai.Bool(false), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")},
			Tools: []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "read", Description: openai.String("reads"), Strict: openai.Bool(false),
				Parameters: map[string]any{"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string"}}}}}}})
		if err != nil {
			return said{}, err
		}
		return ofResponse(r), nil
	}},
}

// post sends a body as it stands and returns status, headers and answer.
func post(t testing.TB, url, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}
