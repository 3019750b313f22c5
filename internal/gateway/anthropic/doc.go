// Package anthropic speaks the Anthropic Messages API through the vendor's SDK, to Anthropic, to
// services that are compatible with it, and to Amazon Bedrock.
package anthropic
