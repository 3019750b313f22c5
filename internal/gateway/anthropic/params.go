package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// params returns the request in the SDK's types. The system prompt and the tools, which stay the
// same through a loop, end in cache breakpoints.
func params(c provider.Call) (sdk.MessageNewParams, error) {
	p := sdk.MessageNewParams{Model: sdk.Model(c.Model), MaxTokens: int64(c.MaxTokens)}
	if c.Request.System != "" {
		p.System = []sdk.TextBlockParam{{Text: c.Request.System, CacheControl: sdk.NewCacheControlEphemeralParam()}}
	}
	for i, t := range c.Request.Tools {
		tool, err := toolParam(t)
		if err != nil {
			return p, fmt.Errorf("tools[%d].schema: %w", i, err)
		}
		if i == len(c.Request.Tools)-1 {
			tool.CacheControl = sdk.NewCacheControlEphemeralParam()
		}
		p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: tool})
	}
	for _, m := range c.Request.Messages {
		var blocks []sdk.ContentBlockParamUnion
		for _, part := range m.Parts {
			switch {
			case part.Call != nil:
				blocks = append(blocks, sdk.NewToolUseBlock(part.Call.ID, provider.Arguments(part.Call.Args), part.Call.Name))
			case part.Return != nil:
				blocks = append(blocks, sdk.NewToolResultBlock(part.Return.ID, part.Return.Content, part.Return.IsError))
			case strings.TrimSpace(part.Text) != "":
				blocks = append(blocks, sdk.NewTextBlock(part.Text))
			}
		}
		if len(blocks) == 0 {
			continue // the API refuses a message without content
		}
		if m.Role == contract.MessageAssistant {
			p.Messages = append(p.Messages, sdk.NewAssistantMessage(blocks...))
		} else {
			p.Messages = append(p.Messages, sdk.NewUserMessage(blocks...))
		}
	}
	return p, nil
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
