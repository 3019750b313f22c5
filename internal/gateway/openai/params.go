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

// Body returns the request as it is sent. OpenAI's newer models refuse max_tokens, and many compatible services know
// nothing else.
func Body(c provider.Call, vendor bool) ([]byte, error) {
	p, err := params(c, vendor)
	if err != nil {
		return nil, err
	}
	// The system prompt is the first message.
	all := append([]contract.Message{{}}, c.Request.Messages...)
	all[0].Parts = []contract.Part{{Text: c.Request.System}}
	as := fmt.Sprintf("chat %q %t", c.Dialect.Reasoning, c.Dialect.ReasoningAlways)
	messages, err := c.Memo.Messages(all, func(i int) string {
		if i == 0 {
			return "chat, system"
		}
		return as
	}, func(i int) ([]byte, error) {
		m := all[i]
		switch {
		case i == 0 && c.Request.System == "":
			return nil, nil
		case i == 0:
			return items([]sdk.ChatCompletionMessageParamUnion{sdk.SystemMessage(c.Request.System)})
		case m.Role == contract.MessageAssistant:
			return items(assistant(m, c.Dialect))
		}
		return items(user(m, c.Images))
	})
	if err != nil {
		return nil, err
	}
	tools, err := c.Memo.Tools(c.Request.Tools, "chat", func(i int) (json.Marshaler, error) { return tool(c.Request.Tools[i]) })
	if err != nil {
		return nil, err
	}
	return provider.Body(p, provider.Field{Name: "tools", Value: tools}, provider.Field{Name: "messages", Value: messages})
}

// items returns values as JSON, with a comma between them.
func items[T json.Marshaler](values []T) ([]byte, error) {
	var out []byte
	for i, v := range values {
		b, err := v.MarshalJSON()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, b...)
	}
	return out, nil
}

func tool(t contract.ToolSpec) (json.Marshaler, error) {
	f := shared.FunctionDefinitionParam{Name: t.Name}
	if t.Description != "" {
		f.Description = sdk.String(t.Description)
	}
	if len(t.Schema) > 0 {
		if err := json.Unmarshal(t.Schema, &f.Parameters); err != nil {
			return nil, err
		}
	}
	return sdk.ChatCompletionFunctionTool(f), nil
}

// params returns all but the tools and messages, in the SDK's types.
func params(c provider.Call, vendor bool) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model:         shared.ChatModel(c.Model),
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: sdk.Bool(true)},
	}
	if vendor || c.Dialect.MaxTokens == "max_completion_tokens" {
		p.MaxCompletionTokens = sdk.Int(int64(c.MaxTokens))
	} else {
		p.MaxTokens = sdk.Int(int64(c.MaxTokens))
	}
	think(&p, c)
	return p, output(&p, c.Request.Output)
}

// think says how much the model may think: nothing if nothing was asked for.
func think(p *sdk.ChatCompletionNewParams, c provider.Call) {
	effort := c.Abilities.Effort(c.Request.Effort)
	if effort == "" {
		return
	}
	switch c.Abilities.Reasoning {
	case provider.ReasoningEffort:
		p.ReasoningEffort = shared.ReasoningEffort(effort)
	case provider.ReasoningSwitch:
		state := "enabled"
		if effort == contract.EffortNone {
			state = "disabled"
		}
		p.SetExtraFields(map[string]any{"thinking": map[string]any{"type": state}})
	}
}

func output(p *sdk.ChatCompletionNewParams, o *contract.Output) error {
	if o == nil {
		return nil
	}
	var schema map[string]any
	if err := json.Unmarshal(o.Schema, &schema); err != nil {
		return fmt.Errorf("output.schema: %w", err)
	}
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: provider.OutputName(o), Schema: schema, Strict: sdk.Bool(provider.Strict(schema)),
	}}
	return nil
}

func assistant(m contract.Message, d provider.Dialect) []sdk.ChatCompletionMessageParamUnion {
	var text, thought []string
	var out sdk.ChatCompletionAssistantMessageParam
	for _, part := range m.Parts {
		switch {
		case part.Call != nil:
			out.ToolCalls = append(out.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID:       part.Call.ID,
				Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: part.Call.Name, Arguments: string(provider.Arguments(part.Call.Args))},
			}})
		case part.Reasoning != nil:
			thought = append(thought, part.Reasoning.Text)
		case part.Text != "":
			text = append(text, part.Text)
		}
	}
	if len(text) == 0 && len(out.ToolCalls) == 0 {
		return nil
	}
	if d.Reasoning != "" {
		if len(thought) == 0 && d.ReasoningAlways && len(out.ToolCalls) > 0 {
			thought = []string{" "} // of another model's turn nothing is known, and the service wants the field
		}
		if len(thought) > 0 {
			out.SetExtraFields(map[string]any{d.Reasoning: strings.Join(thought, "\n")})
		}
	}
	if len(text) > 0 {
		out.Content.OfString = sdk.String(strings.Join(text, "\n"))
	}
	return []sdk.ChatCompletionMessageParamUnion{{OfAssistant: &out}}
}

// user puts the results of tools first, because the API requires them right after their calls. Pictures that a tool
// returned come behind all of them, as the user's, because a result has only text here.
func user(m contract.Message, images map[contract.BlobRef]provider.Picture) []sdk.ChatCompletionMessageParamUnion {
	var out []sdk.ChatCompletionMessageParamUnion
	var content []sdk.ChatCompletionContentPartUnionParam
	var text []string
	pictures := 0
	show := func(i contract.Image) {
		if image, ok := images[i.Ref]; ok {
			content = append(content, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: image.URL()}))
			pictures++
		}
	}
	say := func(s string) { text, content = append(text, s), append(content, sdk.TextContentPart(s)) }
	for _, part := range m.Parts {
		switch {
		case part.Return != nil:
			body := part.Return.Content
			if part.Return.IsError {
				body = "Error: " + body
			}
			out = append(out, sdk.ToolMessage(body, part.Return.ID))
			before := pictures
			for _, i := range part.Return.Images {
				show(i)
			}
			if pictures > before {
				say("Above: what the tool call " + part.Return.ID + " returned as pictures.")
			}
		case part.Image != nil:
			show(*part.Image)
		case part.Text != "":
			say(part.Text)
		}
	}
	switch {
	case pictures > 0:
		out = append(out, sdk.UserMessage(content))
	case len(text) > 0:
		out = append(out, sdk.UserMessage(strings.Join(text, "\n")))
	}
	return out
}
