// Package modelserver plays hand-written scripts in the way in which a model service answers: in
// the Anthropic Messages format, also as Amazon Bedrock speaks it, signatures checked, and in OpenAI's
// chat-completions and Responses formats, streamed or not, correctly or not. It records the requests, so that a test can check what left the machine.
package modelserver
