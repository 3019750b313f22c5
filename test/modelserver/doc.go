// Package modelserver plays hand-written scripts as a model service would
// answer them: in the Anthropic Messages format and in OpenAI's
// chat-completions format, streamed or not, well or badly behaved. It records
// what it was sent, so that a test can say what left the machine.
package modelserver
