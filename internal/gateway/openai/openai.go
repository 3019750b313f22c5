package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// BaseURL is the address of the service when no other is configured.
const BaseURL = "https://api.openai.com/v1/"

// Provider implements provider.Provider in the chat-completions format.
type Provider struct{}

// Stream implements provider.Provider.
func (Provider) Stream(ctx context.Context, c provider.Call, sink provider.Sink) (provider.Finish, error) {
	body, err := Body(c, isOpenAI(c.Endpoint.BaseURL))
	if err != nil {
		return provider.Finish{}, &provider.Error{Code: provider.CodeInvalid, Message: err.Error(), Err: err}
	}
	completions := sdk.NewChatCompletionService(options(c.Endpoint)...)
	stream := completions.NewStreaming(ctx, sdk.ChatCompletionNewParams{}, option.WithRequestBody("application/json", body))
	defer stream.Close()
	var r reader
	for stream.Next() {
		if err := r.take(stream.Current(), sink); err != nil {
			return r.finish, err
		}
	}
	if err := stream.Err(); err != nil {
		return r.finish, failure(err)
	}
	switch {
	case !r.started:
		return r.finish, &provider.Error{Code: provider.CodeUnavailable, Message: "the model service did not answer in the chat-completions stream format", Retriable: true}
	case r.finish.Stop == "":
		return r.finish, &provider.Error{Code: provider.CodeUnavailable, Message: "the model service's stream ended before its message was complete", Retriable: true}
	}
	return r.finish, nil
}

func isOpenAI(base string) bool {
	u, err := url.Parse(base)
	return err == nil && u.Hostname() == "api.openai.com"
}

// reader turns the chunks of one stream into calls of the sink.
type reader struct {
	finish  provider.Finish
	started bool
	refused bool // a piece of the answer was a refusal
}

// reasoning returns what a model thinks, in the field that the service has for it; the vendor has none.
func reasoning(d sdk.ChatCompletionChunkChoiceDelta) string {
	for _, field := range []string{"reasoning_content", "reasoning"} {
		var text string
		if f, ok := d.JSON.ExtraFields[field]; ok && json.Unmarshal([]byte(f.Raw()), &text) == nil && text != "" {
			return text
		}
	}
	return ""
}

func (r *reader) take(c sdk.ChatCompletionChunk, sink provider.Sink) error {
	if c.JSON.Usage.Valid() {
		u := c.Usage
		cached := u.PromptTokensDetails.CachedTokens
		if cached < 0 || cached > u.PromptTokens {
			cached = 0
		}
		r.finish.Usage = provider.Usage{In: u.PromptTokens - cached, Out: u.CompletionTokens, CacheRead: cached, Known: true}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // only one answer was asked for
		}
		r.started = true
		d := choice.Delta
		if thought := reasoning(d); thought != "" {
			if err := sink.Reasoning(0, contract.Reasoning{Text: thought}); err != nil {
				return err
			}
		}
		r.refused = r.refused || d.Refusal != ""
		for _, text := range []string{d.Content, d.Refusal} {
			if text == "" {
				continue
			}
			if err := sink.Text(text); err != nil {
				return err
			}
		}
		for _, call := range d.ToolCalls {
			i := int(call.Index)
			if call.ID != "" || call.Function.Name != "" {
				if err := sink.Call(i, call.ID, call.Function.Name); err != nil {
					return err
				}
			}
			if call.Function.Arguments != "" {
				if err := sink.Args(i, call.Function.Arguments); err != nil {
					return err
				}
			}
		}
		if choice.FinishReason != "" {
			r.finish.Stop = stop(choice.FinishReason)
		}
		if r.refused && r.finish.Stop != "" {
			r.finish.Stop = contract.StopRefusal
		}
	}
	return nil
}

func stop(reason string) contract.StopReason {
	switch reason {
	case "tool_calls", "function_call":
		return contract.StopToolUse
	case "length":
		return contract.StopLength
	case "content_filter":
		return contract.StopRefusal
	}
	return contract.StopEnd
}

// failure makes a provider.Error of an error of the SDK, without the SDK's own text, which names
// the request.
func failure(err error) error {
	var api *sdk.Error
	if errors.As(err, &api) && api.StatusCode >= 400 {
		var h http.Header
		if api.Response != nil {
			h = api.Response.Header
		}
		body := api.RawJSON()
		if api.Message != "" {
			body = api.Message
			if api.Code != "" {
				body = api.Code + ": " + body
			}
		}
		return provider.StatusError(api.StatusCode, h, body, time.Now())
	}
	var inStream *ssestream.StreamError
	if errors.As(err, &inStream) {
		return provider.StreamError(kind(inStream.Event.Data), provider.Message(string(inStream.Event.Data)))
	}
	return provider.TransportError(err)
}

// kind is what an error inside a stream says that it is of.
func kind(data []byte) string {
	var shape struct {
		Error struct {
			Type string `json:"type"`
			Code string `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &shape) == nil {
		if of := strings.Trim(shape.Error.Type+" "+shape.Error.Code, " "); of != "" {
			return of
		}
	}
	return "stream error"
}
