package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// BaseURL is the address of the service when no other is configured.
const BaseURL = "https://api.anthropic.com/"

// Provider implements provider.Provider in the Messages format.
type Provider struct{}

// Stream implements provider.Provider.
func (Provider) Stream(ctx context.Context, c provider.Call, sink provider.Sink) (provider.Finish, error) {
	key := option.WithAPIKey
	if c.Endpoint.Bearer {
		key = option.WithAuthToken
	}
	return stream(ctx, c, sink, option.WithBaseURL(c.Endpoint.BaseURL), key(c.Endpoint.Key))
}

// stream asks for one turn. to says where, and who asks.
func stream(ctx context.Context, c provider.Call, sink provider.Sink, to ...option.RequestOption) (provider.Finish, error) {
	body, err := Body(c)
	if err != nil {
		return provider.Finish{}, &provider.Error{Code: provider.CodeInvalid, Message: err.Error(), Err: err}
	}
	// The service is made without the SDK's client, which would read keys,
	// addresses and headers from the environment and the home directory.
	messages := sdk.NewMessageService(append(to, option.WithHTTPClient(c.Endpoint.HTTP), option.WithMaxRetries(0))...)
	stream := messages.NewStreaming(ctx, sdk.MessageNewParams{}, option.WithRequestBody("application/json", body))
	defer stream.Close()
	var r reader
	for stream.Next() {
		if err := r.take(stream.Current(), sink); err != nil {
			return r.finish, err
		}
		if r.done {
			return r.finish, nil
		}
	}
	if err := stream.Err(); err != nil {
		return r.finish, failure(err)
	}
	if !r.started {
		return r.finish, &provider.Error{Code: provider.CodeUnavailable, Message: "the model service did not answer in the Messages API's stream format", Retriable: true}
	}
	return r.finish, &provider.Error{Code: provider.CodeUnavailable, Message: "the model service's stream ended before its message was complete", Retriable: true}
}

// reader turns the events of one stream into calls of the sink.
type reader struct {
	finish   provider.Finish
	started  bool
	done     bool
	tools    map[int64]bool // content blocks that are tool calls
	thoughts map[int64]bool // content blocks that are thinking
}

func thoughts(m map[int64]bool, index int64) map[int64]bool {
	if m == nil {
		m = map[int64]bool{}
	}
	m[index] = true
	return m
}

func (r *reader) take(e sdk.MessageStreamEventUnion, sink provider.Sink) error {
	switch e.Type {
	case "message_start":
		r.started = true
		u := e.Message.Usage
		r.finish.Usage = provider.Usage{In: u.InputTokens, Out: u.OutputTokens, CacheRead: u.CacheReadInputTokens, CacheWrite: u.CacheCreationInputTokens}
	case "content_block_start":
		b := e.ContentBlock
		switch b.Type {
		case "text":
			if b.Text != "" {
				return sink.Text(b.Text)
			}
		case "thinking":
			r.thoughts = thoughts(r.thoughts, e.Index)
			return sink.Reasoning(int(e.Index), contract.Reasoning{Text: b.Thinking, Opaque: b.Signature})
		case "redacted_thinking":
			return sink.Reasoning(int(e.Index), contract.Reasoning{Opaque: b.Data, Hidden: true})
		case "tool_use":
			if r.tools == nil {
				r.tools = map[int64]bool{}
			}
			r.tools[e.Index] = true
			if err := sink.Call(int(e.Index), b.ID, b.Name); err != nil {
				return err
			}
			// A service that does not stream arguments sends them here.
			if raw, err := json.Marshal(b.Input); err == nil && len(raw) > 2 && raw[0] == '{' {
				return sink.Args(int(e.Index), string(raw))
			}
		}
	case "content_block_delta":
		switch {
		case e.Delta.Type == "text_delta" && e.Delta.Text != "":
			return sink.Text(e.Delta.Text)
		case e.Delta.Type == "input_json_delta" && r.tools[e.Index]:
			return sink.Args(int(e.Index), e.Delta.PartialJSON)
		case e.Delta.Type == "thinking_delta" && r.thoughts[e.Index]:
			return sink.Reasoning(int(e.Index), contract.Reasoning{Text: e.Delta.Thinking})
		case e.Delta.Type == "signature_delta" && r.thoughts[e.Index]:
			return sink.Reasoning(int(e.Index), contract.Reasoning{Opaque: e.Delta.Signature})
		}
	case "message_delta":
		r.finish.Stop = stop(e.Delta.StopReason)
		if !e.JSON.Usage.Valid() {
			return nil
		}
		u := &r.finish.Usage
		u.Out, u.Known = e.Usage.OutputTokens, true
		// Totals here are cumulative; services that only count at the start send zero.
		if e.Usage.InputTokens != 0 {
			u.In = e.Usage.InputTokens
		}
		if e.Usage.CacheReadInputTokens != 0 {
			u.CacheRead = e.Usage.CacheReadInputTokens
		}
		if e.Usage.CacheCreationInputTokens != 0 {
			u.CacheWrite = e.Usage.CacheCreationInputTokens
		}
	case "message_stop":
		r.done = r.started
	}
	return nil
}

func stop(s sdk.StopReason) contract.StopReason {
	switch s {
	case sdk.StopReasonToolUse:
		return contract.StopToolUse
	case sdk.StopReasonMaxTokens, sdk.StopReasonModelContextWindowExceeded:
		return contract.StopLength
	case sdk.StopReasonRefusal:
		return contract.StopRefusal
	}
	return contract.StopEnd
}

// failure makes a provider.Error of an error of the SDK, without the SDK's own text, which names
// the request.
func failure(err error) error {
	var api *sdk.Error
	if errors.As(err, &api) {
		if api.StatusCode >= 400 {
			var h http.Header
			if api.Response != nil {
				h = api.Response.Header
			}
			return provider.StatusError(api.StatusCode, h, api.RawJSON(), time.Now())
		}
		return provider.StreamError(string(api.Type()), provider.Message(api.RawJSON()))
	}
	return provider.TransportError(err)
}
