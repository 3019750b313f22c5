package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// ResponsesBody returns the request as it is sent.
func ResponsesBody(c provider.Call) ([]byte, error) {
	p, err := responsesParams(c)
	if err != nil {
		return nil, err
	}
	messages, err := c.Memo.Messages(c.Request.Messages, func(int) string { return "responses" }, func(i int) ([]byte, error) {
		return items(spoken(c.Request.Messages[i], c.Images))
	})
	if err != nil {
		return nil, err
	}
	tools, err := c.Memo.Tools(c.Request.Tools, "responses", func(i int) (json.Marshaler, error) { return responsesTool(c.Request.Tools[i]) })
	if err != nil {
		return nil, err
	}
	return provider.Body(p, provider.Field{Name: "tools", Value: tools}, provider.Field{Name: "input", Value: messages})
}

func responsesTool(t contract.ToolSpec) (json.Marshaler, error) {
	f := responses.FunctionToolParam{Name: t.Name, Strict: sdk.Bool(false), Parameters: map[string]any{}}
	if t.Description != "" {
		f.Description = sdk.String(t.Description)
	}
	if len(t.Schema) > 0 {
		if err := json.Unmarshal(t.Schema, &f.Parameters); err != nil {
			return nil, err
		}
	}
	return responses.ToolUnionParam{OfFunction: &f}, nil
}

// responsesParams returns all but the tools and messages, in the SDK's types.
func responsesParams(c provider.Call) (responses.ResponseNewParams, error) {
	p := responses.ResponseNewParams{Model: c.Model, Store: sdk.Bool(false), MaxOutputTokens: sdk.Int(int64(c.MaxTokens))}
	if c.Abilities.Reasoning != "" { // a model that does not think refuses to be asked for its thoughts
		p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	}
	if c.Request.System != "" {
		p.Instructions = sdk.String(c.Request.System)
	}
	if effort := c.Abilities.Effort(c.Request.Effort); effort != "" && c.Abilities.Reasoning == provider.ReasoningEffort {
		p.Reasoning.Effort = shared.ReasoningEffort(effort)
	}
	if o := c.Request.Output; o != nil {
		var schema map[string]any
		if err := json.Unmarshal(o.Schema, &schema); err != nil {
			return p, fmt.Errorf("output.schema: %w", err)
		}
		p.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{Name: provider.OutputName(o), Schema: schema, Strict: sdk.Bool(provider.Strict(schema))}
	}
	return p, nil
}

// spoken returns a message as items, in its order: texts and pictures that stand together are one message.
func spoken(m contract.Message, images map[contract.BlobRef]provider.Picture) []responses.ResponseInputItemUnionParam {
	var out []responses.ResponseInputItemUnionParam
	var text []string
	var content responses.ResponseInputMessageContentListParam
	say := func() {
		switch {
		case m.Role == contract.MessageAssistant && len(text) > 0:
			out = append(out, message(responses.ResponseInputItemParamOfMessage(strings.Join(text, "\n"), responses.EasyInputMessageRoleAssistant)))
		case m.Role != contract.MessageAssistant && len(content) > 0:
			out = append(out, message(responses.ResponseInputItemParamOfMessage(content, responses.EasyInputMessageRoleUser)))
		}
		text, content = nil, nil
	}
	for _, part := range m.Parts {
		switch {
		case part.Call != nil:
			say()
			out = append(out, responses.ResponseInputItemParamOfFunctionCall(string(provider.Arguments(part.Call.Args)), part.Call.ID, part.Call.Name))
		case part.Return != nil:
			say()
			out = append(out, returned(part.Return, images))
		case part.Reasoning != nil:
			// The service keeps nothing, so that an item without what it encrypted is one that it does not know.
			if r := part.Reasoning; r.ID != "" && r.Opaque != "" {
				say()
				out = append(out, thought(r))
			}
		case part.Image != nil:
			if image, ok := images[part.Image.Ref]; ok {
				content = append(content, responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{
					Detail: responses.ResponseInputImageDetailAuto, ImageURL: sdk.String(image.URL())}})
			}
		case part.Text != "":
			text = append(text, part.Text)
			content = append(content, responses.ResponseInputContentParamOfInputText(part.Text))
		}
	}
	say()
	return out
}

// message says of an item that it is a message, which the API knows without, and other readers of the format may not.
func message(item responses.ResponseInputItemUnionParam) responses.ResponseInputItemUnionParam {
	item.OfMessage.Type = responses.EasyInputMessageTypeMessage
	return item
}

// thought returns what the model thought, as its service gave it.
func thought(r *contract.Reasoning) responses.ResponseInputItemUnionParam {
	summary := []responses.ResponseReasoningItemSummaryParam{}
	if r.Text != "" {
		summary = append(summary, responses.ResponseReasoningItemSummaryParam{Text: r.Text})
	}
	item := responses.ResponseInputItemParamOfReasoning(r.ID, summary)
	item.OfReasoning.EncryptedContent = sdk.String(r.Opaque)
	return item
}

// returned returns what a tool returned, with its pictures.
func returned(r *contract.ToolReturn, images map[contract.BlobRef]provider.Picture) responses.ResponseInputItemUnionParam {
	body := r.Content
	if r.IsError {
		body = "Error: " + body
	}
	out := responses.ResponseInputItemFunctionCallOutputParam{CallID: sdk.String(r.ID)}
	var shown responses.ResponseFunctionCallOutputItemListParam
	for _, i := range r.Images {
		if image, ok := images[i.Ref]; ok {
			shown = append(shown, responses.ResponseFunctionCallOutputItemUnionParam{OfInputImage: &responses.ResponseInputImageContentParam{ImageURL: sdk.String(image.URL())}})
		}
	}
	if len(shown) == 0 {
		out.Output.OfString = sdk.String(body)
	} else {
		if strings.TrimSpace(body) != "" {
			shown = append(responses.ResponseFunctionCallOutputItemListParam{{OfInputText: &responses.ResponseInputTextContentParam{Text: body}}}, shown...)
		}
		out.Output.OfResponseFunctionCallOutputItemArray = shown
	}
	return responses.ResponseInputItemUnionParam{OfFunctionCallOutput: &out}
}
