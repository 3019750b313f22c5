// Package openai speaks OpenAI's chat-completions API through the vendor's SDK,
// to OpenAI or to any service that is compatible with it.
package openai
