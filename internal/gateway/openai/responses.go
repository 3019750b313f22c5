package openai

import (
	"context"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// Responses implements provider.Provider in the Responses format. Nothing is kept by the service: each request has the
// whole conversation, with what the model thought encrypted in it.
type Responses struct{}

// Stream implements provider.Provider.
func (Responses) Stream(ctx context.Context, c provider.Call, sink provider.Sink) (provider.Finish, error) {
	body, err := ResponsesBody(c)
	if err != nil {
		return provider.Finish{}, &provider.Error{Code: provider.CodeInvalid, Message: err.Error(), Err: err}
	}
	service := responses.NewResponseService(options(c.Endpoint)...)
	stream := service.NewStreaming(ctx, responses.ResponseNewParams{}, option.WithRequestBody("application/json", body))
	defer stream.Close()
	var r events
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
		return r.finish, &provider.Error{Code: provider.CodeUnavailable, Message: "the model service did not answer in the Responses API's stream format", Retriable: true}
	}
	return r.finish, &provider.Error{Code: provider.CodeUnavailable, Message: "the model service's stream ended before its message was complete", Retriable: true}
}

// options are those of every request. The services are made without the SDK's client, which would read keys, addresses and
// headers from the environment.
func options(e provider.Endpoint) []option.RequestOption {
	opts := []option.RequestOption{option.WithBaseURL(e.BaseURL), option.WithHTTPClient(e.HTTP), option.WithMaxRetries(0)}
	if e.Key != "" {
		opts = append(opts, option.WithAPIKey(e.Key))
	}
	return opts
}

// events turns the events of one stream into calls of the sink.
type events struct {
	finish  provider.Finish
	started bool
	done    bool
	refused bool           // a piece of the answer was a refusal
	args    map[int64]bool // calls whose arguments arrived in pieces
}

func (r *events) take(e responses.ResponseStreamEventUnion, sink provider.Sink) error {
	index := int(e.OutputIndex)
	switch e.Type {
	case "response.created", "response.in_progress":
		r.started = true
	case "response.output_item.added":
		switch e.Item.Type {
		case "function_call":
			return sink.Call(index, e.Item.CallID, e.Item.Name)
		case "reasoning":
			return sink.Reasoning(index, contract.Reasoning{ID: e.Item.ID})
		}
	case "response.output_text.delta":
		if e.Delta != "" {
			return sink.Text(e.Delta)
		}
	case "response.refusal.delta":
		r.refused = true
		return sink.Text(e.Delta)
	case "response.reasoning_summary_part.added":
		if e.SummaryIndex > 0 {
			return sink.Reasoning(index, contract.Reasoning{Text: "\n\n"})
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return sink.Reasoning(index, contract.Reasoning{Text: e.Delta})
	case "response.function_call_arguments.delta":
		if r.args == nil {
			r.args = map[int64]bool{}
		}
		r.args[e.OutputIndex] = true
		return sink.Args(index, e.Delta)
	case "response.output_item.done":
		switch {
		case e.Item.Type == "reasoning" && e.Item.EncryptedContent != "":
			return sink.Reasoning(index, contract.Reasoning{ID: e.Item.ID, Opaque: e.Item.EncryptedContent, Hidden: true})
		case e.Item.Type == "function_call" && !r.args[e.OutputIndex]: // a service that does not stream arguments sends them here
			return sink.Args(index, e.Item.Arguments.OfString)
		}
	case "response.completed", "response.incomplete":
		r.done = true
		r.end(e.Response)
	case "response.failed":
		r.use(e.Response)
		return provider.StreamError(string(e.Response.Error.Code), e.Response.Error.Message)
	case "error":
		return provider.StreamError(e.Code, e.Message)
	}
	return nil
}

func (r *events) end(response responses.Response) {
	r.use(response)
	r.finish.Stop = contract.StopEnd
	if string(response.Status) == "incomplete" {
		r.finish.Stop = contract.StopLength
		if response.IncompleteDetails.Reason == "content_filter" {
			r.finish.Stop = contract.StopRefusal
		}
	}
	if r.refused {
		r.finish.Stop = contract.StopRefusal
	}
}

// use notes what the service counted. Tokens that were read from or written to the cache are among the input's.
func (r *events) use(response responses.Response) {
	if !response.JSON.Usage.Valid() {
		return
	}
	u := response.Usage
	read, written := u.InputTokensDetails.CachedTokens, u.InputTokensDetails.CacheWriteTokens
	if read < 0 || read > u.InputTokens {
		read = 0
	}
	if written < 0 || written > u.InputTokens-read {
		written = 0
	}
	r.finish.Usage = provider.Usage{In: u.InputTokens - read - written, Out: u.OutputTokens, CacheRead: read, CacheWrite: written, Known: true}
}
