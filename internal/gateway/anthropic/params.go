package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// Body returns the request as it is sent. The system prompt, the tools and the last two messages of the user end
// in cache breakpoints, of which the service allows four: the system prompt and the tools stay the same through a loop,
// the last message is where the next request goes on, and the one before is where this one was read up to.
func Body(c provider.Call) ([]byte, error) {
	p, err := params(c)
	if err != nil {
		return nil, err
	}
	content := make([][]sdk.ContentBlockParamUnion, len(c.Request.Messages))
	for i, m := range c.Request.Messages {
		content[i] = blocks(m, c.Images)
	}
	marked := breakpoints(c.Request.Messages, content)
	think(&p, c, content)
	messages, err := c.Memo.Messages(c.Request.Messages, func(i int) string {
		if marked[i] {
			return "anthropic, a breakpoint"
		}
		return "anthropic"
	}, func(i int) ([]byte, error) {
		if len(content[i]) == 0 { // the API refuses a message without content
			return nil, nil
		}
		return sdk.MessageParam{Role: sdk.MessageParamRole(c.Request.Messages[i].Role), Content: content[i]}.MarshalJSON()
	})
	if err != nil {
		return nil, err
	}
	tools, err := c.Memo.Tools(c.Request.Tools, "anthropic", func(i int) (json.Marshaler, error) {
		tool, err := toolParam(c.Request.Tools[i])
		if err == nil && i == len(c.Request.Tools)-1 {
			tool.CacheControl = sdk.NewCacheControlEphemeralParam()
		}
		return sdk.ToolUnionParam{OfTool: tool}, err
	})
	if err != nil {
		return nil, err
	}
	return provider.Body(p, provider.Field{Name: "tools", Value: tools}, provider.Field{Name: "messages", Value: messages})
}

// params returns all but the tools and messages, in the SDK's types.
func params(c provider.Call) (sdk.MessageNewParams, error) {
	p := sdk.MessageNewParams{Model: sdk.Model(c.Model), MaxTokens: int64(c.MaxTokens)}
	if c.Request.System != "" {
		p.System = []sdk.TextBlockParam{{Text: c.Request.System, CacheControl: sdk.NewCacheControlEphemeralParam()}}
	}
	if c.Request.Output != nil {
		var schema map[string]any
		if err := json.Unmarshal(c.Request.Output.Schema, &schema); err != nil {
			return p, fmt.Errorf("output.schema: %w", err)
		}
		closed(schema)
		p.OutputConfig.Format.Schema = schema
	}
	return p, nil
}

func blocks(m contract.Message, images map[contract.BlobRef]provider.Picture) []sdk.ContentBlockParamUnion {
	var out []sdk.ContentBlockParamUnion
	for _, part := range m.Parts {
		switch {
		case part.Call != nil:
			out = append(out, sdk.NewToolUseBlock(part.Call.ID, provider.Arguments(part.Call.Args), part.Call.Name))
		case part.Return != nil:
			out = append(out, toolResult(part.Return, images))
		case part.Reasoning != nil:
			// A signature is what makes it the service's own: without one the service refuses it.
			switch r := part.Reasoning; {
			case r.Opaque == "":
			case r.Hidden:
				out = append(out, sdk.NewRedactedThinkingBlock(r.Opaque))
			default:
				out = append(out, sdk.NewThinkingBlock(r.Opaque, r.Text))
			}
		case part.Image != nil:
			if image, ok := images[part.Image.Ref]; ok {
				out = append(out, sdk.NewImageBlockBase64(image.Media, image.Base64))
			}
		case part.Text != "":
			out = append(out, sdk.NewTextBlock(part.Text))
		}
	}
	return out
}

// toolResult has no text block for a blank result, which the API refuses.
func toolResult(r *contract.ToolReturn, images map[contract.BlobRef]provider.Picture) sdk.ContentBlockParamUnion {
	out := sdk.ToolResultBlockParam{ToolUseID: r.ID, IsError: sdk.Bool(r.IsError)}
	if strings.TrimSpace(r.Content) != "" {
		out.Content = append(out.Content, sdk.ToolResultBlockParamContentUnion{OfText: &sdk.TextBlockParam{Text: r.Content}})
	}
	if r.IsError {
		images = nil // the API takes only text as an error
	}
	for _, i := range r.Images {
		if image, ok := images[i.Ref]; ok {
			block := sdk.NewImageBlockBase64(image.Media, image.Base64)
			out.Content = append(out.Content, sdk.ToolResultBlockParamContentUnion{OfImage: block.OfImage})
		}
	}
	return sdk.ContentBlockParamUnion{OfToolResult: &out}
}

// breakpoints marks the ends of the last two messages of the user, and says which those are.
func breakpoints(messages []contract.Message, content [][]sdk.ContentBlockParamUnion) map[int]bool {
	marked := map[int]bool{}
	for i := len(messages) - 1; i >= 0 && len(marked) < 2; i-- {
		n := len(content[i])
		if messages[i].Role != contract.MessageUser || n == 0 {
			continue
		}
		if cache := content[i][n-1].GetCacheControl(); cache != nil {
			*cache = sdk.NewCacheControlEphemeralParam()
			marked[i] = true
		}
	}
	return marked
}

// The tokens that a model may think for, where it is told a number; the API wants at least minBudget.
const minBudget = 1024

var budgets = map[contract.Effort]int64{contract.EffortLow: 2048, contract.EffortMedium: 8192, contract.EffortHigh: 24576}

// think says how much the model may think. A model that measures it out itself is let to if nothing was asked for; one
// that is given a number of tokens thinks only if it is asked to.
func think(p *sdk.MessageNewParams, c provider.Call, content [][]sdk.ContentBlockParamUnion) {
	effort := c.Abilities.Effort(c.Request.Effort)
	switch c.Abilities.Reasoning {
	case provider.ReasoningAdaptive:
		if effort == contract.EffortNone {
			p.Thinking.OfDisabled = &sdk.ThinkingConfigDisabledParam{}
			return
		}
		p.Thinking.OfAdaptive = &sdk.ThinkingConfigAdaptiveParam{Display: sdk.ThinkingConfigAdaptiveDisplaySummarized}
		p.OutputConfig.Effort = sdk.OutputConfigEffort(effort)
	case provider.ReasoningBudget:
		budget := min(budgets[effort], p.MaxTokens/2)
		if budget < minBudget || !thinkingBegun(c.Request.Messages, content) {
			return
		}
		p.Thinking = sdk.ThinkingConfigParamOfEnabled(budget)
	}
}

// thinkingBegun reports whether the turn that is under way, whose calls are being answered, began with a thought, or
// none is under way. The API refuses to have thinking begin in the middle of one.
func thinkingBegun(messages []contract.Message, content [][]sdk.ContentBlockParamUnion) bool {
	begun, fresh := true, true
	for i, m := range messages {
		if len(content[i]) == 0 {
			continue
		}
		first := content[i][0]
		switch {
		case m.Role == contract.MessageUser:
			fresh = fresh || first.OfToolResult == nil
		case fresh:
			begun, fresh = first.OfThinking != nil || first.OfRedactedThinking != nil, false
		}
	}
	return begun || fresh
}

func toolParam(t contract.ToolSpec) (*sdk.ToolParam, error) {
	schema := map[string]any{}
	if len(t.Schema) > 0 {
		if err := json.Unmarshal(t.Schema, &schema); err != nil {
			return nil, err
		}
	}
	in := sdk.ToolInputSchemaParam{Properties: schema["properties"], ExtraFields: map[string]any{}}
	if in.Properties == nil {
		in.Properties = map[string]any{}
	}
	if required, ok := schema["required"].([]any); ok {
		for _, r := range required {
			if s, ok := r.(string); ok {
				in.Required = append(in.Required, s)
			}
		}
	}
	for k, v := range schema {
		if k != "properties" && k != "required" && k != "type" {
			in.ExtraFields[k] = v
		}
	}
	tool := &sdk.ToolParam{Name: t.Name, InputSchema: in}
	if t.Description != "" {
		tool.Description = sdk.String(t.Description)
	}
	return tool, nil
}

// closed makes a schema one that the API takes: objects have no other properties than those named, and bounds, which it
// refuses, are left to the gateway, which checks every answer.
func closed(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, bound := range []string{"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"} {
			if _, number := v[bound].(float64); number {
				delete(v, bound)
			}
		}
		for _, inner := range v {
			closed(inner)
		}
	case []any:
		for _, inner := range v {
			closed(inner)
		}
	}
}
