package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// params returns the request in the SDK's types. OpenAI's newer models refuse max_tokens, and many
// compatible services know nothing else.
func params(c provider.Call, vendor bool) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model:         shared.ChatModel(c.Model),
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: sdk.Bool(true)},
	}
	if vendor {
		p.MaxCompletionTokens = sdk.Int(int64(c.MaxTokens))
	} else {
		p.MaxTokens = sdk.Int(int64(c.MaxTokens))
	}
	if c.Request.System != "" {
		p.Messages = append(p.Messages, sdk.SystemMessage(c.Request.System))
	}
	for i, t := range c.Request.Tools {
		f := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			f.Description = sdk.String(t.Description)
		}
		if len(t.Schema) > 0 {
			if err := json.Unmarshal(t.Schema, &f.Parameters); err != nil {
				return p, fmt.Errorf("tools[%d].schema: %w", i, err)
			}
		}
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(f))
	}
	for _, m := range c.Request.Messages {
		if m.Role == contract.MessageAssistant {
			p.Messages = append(p.Messages, assistant(m)...)
		} else {
			p.Messages = append(p.Messages, user(m)...)
		}
	}
	return p, nil
}

func assistant(m contract.Message) []sdk.ChatCompletionMessageParamUnion {
	var text []string
	var out sdk.ChatCompletionAssistantMessageParam
	for _, part := range m.Parts {
		switch {
		case part.Call != nil:
			out.ToolCalls = append(out.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID:       part.Call.ID,
				Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: part.Call.Name, Arguments: string(provider.Arguments(part.Call.Args))},
			}})
		case part.Text != "":
			text = append(text, part.Text)
		}
	}
	if len(text) == 0 && len(out.ToolCalls) == 0 {
		return nil
	}
	if len(text) > 0 {
		out.Content.OfString = sdk.String(strings.Join(text, "\n"))
	}
	return []sdk.ChatCompletionMessageParamUnion{{OfAssistant: &out}}
}

// user puts the results of tools first, because the API requires them right after their calls.
func user(m contract.Message) []sdk.ChatCompletionMessageParamUnion {
	var out []sdk.ChatCompletionMessageParamUnion
	var text []string
	for _, part := range m.Parts {
		switch {
		case part.Return != nil:
			content := part.Return.Content
			if part.Return.IsError {
				content = "Error: " + content
			}
			out = append(out, sdk.ToolMessage(content, part.Return.ID))
		case part.Text != "":
			text = append(text, part.Text)
		}
	}
	if len(text) > 0 {
		out = append(out, sdk.UserMessage(strings.Join(text, "\n")))
	}
	return out
}
