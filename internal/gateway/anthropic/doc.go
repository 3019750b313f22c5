// Package anthropic speaks the Anthropic Messages API through the vendor's SDK.
package anthropic
