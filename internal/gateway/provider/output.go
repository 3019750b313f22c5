package provider

import (
	"choir.dev/choiros/contract"
)

// OutputName returns a structured output's name with the letters that services take.
func OutputName(o *contract.Output) string { return name(o.Name) }

// Strict reports whether a schema keeps the rules under which OpenAI's services promise an answer of that form: every
// property of an object is required, there are no others, and nothing has bounds. They refuse to promise any other, and
// then only try to.
func Strict(schema any) bool {
	switch s := schema.(type) {
	case map[string]any:
		for _, bound := range []string{"minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "oneOf", "allOf", "not", "patternProperties"} {
			if _, is := s[bound].(map[string]any); !is && s[bound] != nil {
				return false
			}
		}
		if s["type"] == "object" {
			properties, _ := s["properties"].(map[string]any)
			required, _ := s["required"].([]any)
			if s["additionalProperties"] != false || len(required) != len(properties) {
				return false
			}
		}
		for _, inner := range s {
			if !Strict(inner) {
				return false
			}
		}
	case []any:
		for _, inner := range s {
			if !Strict(inner) {
				return false
			}
		}
	}
	return true
}
