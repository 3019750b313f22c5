// Package openai speaks OpenAI's chat-completions API and its Responses API through the
// vendor's SDK, to OpenAI or to any service that is compatible with it.
package openai
