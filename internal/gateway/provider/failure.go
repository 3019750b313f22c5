package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Codes of contract.TurnError that providers use.
const (
	CodeRateLimited = "rate_limited"
	CodeUnavailable = "unavailable"
	CodeTimeout     = "timeout"
	CodeInvalid     = "invalid"
	CodeTooLarge    = "too_large"
	CodeOverflow    = "overflow" // the request is over the model's context window
	CodeNoModel     = "no_model"
	CodeBudget      = "budget"
)

// ErrSlow is the cause of the error when the HTTP client ended a call because nothing arrived for
// too long.
var ErrSlow = errors.New("nothing arrived from the model service in time")

// ErrStalled is the cause of the error when the HTTP client ended a call whose connection lived, but
// whose answer did not grow for too long.
var ErrStalled = errors.New("the model service keeps the connection open and says nothing")

// ErrBody is the cause of the error when the HTTP client ended a call because the raw answer
// exceeded the size limit.
var ErrBody = errors.New("the model service's answer is over the size limit")

// StatusError makes an Error of an HTTP answer that is not a success. body is the answer's text,
// which may be JSON.
func StatusError(status int, header http.Header, body string, now time.Time) *Error {
	e := &Error{Status: status, Message: fmt.Sprintf("HTTP %d: %s", status, Message(body))}
	e.RetryAfter = retryAfter(header, now)
	switch {
	case status != http.StatusTooManyRequests && overflows(body):
		e.Code = CodeOverflow
	case status == http.StatusTooManyRequests:
		e.Code, e.Retriable = CodeRateLimited, true
	case status == http.StatusConflict, status == http.StatusTooEarly, status == http.StatusFailedDependency: // the last is Bedrock's, of its model
		e.Code, e.Retriable = CodeUnavailable, true
	case status == http.StatusRequestTimeout || status == http.StatusGatewayTimeout:
		e.Code, e.Retriable = CodeTimeout, true
	case status >= 500:
		e.Code, e.Retriable = CodeUnavailable, true
	case status == http.StatusRequestEntityTooLarge:
		e.Code = CodeTooLarge
	case status == http.StatusNotFound:
		e.Code = CodeNoModel
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Code, e.Message = CodeInvalid, "the model service refused the key ("+e.Message+")"
	case status >= 300 && status < 400:
		e.Code, e.Message = CodeInvalid, fmt.Sprintf("HTTP %d: the model service redirects; keys are sent only to the configured address", status)
	default:
		e.Code = CodeInvalid
	}
	return e
}

// TransportError makes an Error of a failed request or a stream that broke.
func TransportError(err error) error {
	var known *Error
	switch {
	case errors.Is(err, ErrFull), errors.As(err, &known):
		return err
	case errors.Is(err, ErrBody):
		return ErrFull
	case errors.Is(err, ErrSlow), errors.Is(err, ErrStalled):
		return &Error{Code: CodeTimeout, Message: slow(err), Retriable: true, Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &Error{Code: CodeTimeout, Message: ErrSlow.Error(), Retriable: true, Err: err}
	}
	return &Error{Code: CodeUnavailable, Message: err.Error(), Retriable: true, Err: err}
}

func slow(err error) string {
	if errors.Is(err, ErrStalled) {
		return ErrStalled.Error()
	}
	return ErrSlow.Error()
}

// StreamError makes an Error of an error that a service reports inside a stream, from its type and
// message.
func StreamError(kind, message string) *Error {
	e := &Error{Code: CodeUnavailable, Message: strings.TrimSpace(kind + ": " + message), Retriable: true}
	is := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(kind), w) })
	}
	switch {
	case overflows(kind + " " + message):
		e.Code, e.Retriable = CodeOverflow, false
	case is("rate_limit", "throttling"):
		e.Code = CodeRateLimited
	case is("timeout"):
		e.Code = CodeTimeout
	case is("authentication", "permission", "accessdenied", "api_key"):
		e.Status, e.Code, e.Retriable = http.StatusForbidden, CodeInvalid, false
	case is("invalid", "validation"):
		e.Code, e.Retriable = CodeInvalid, false
	}
	return e
}

// overflowing are the words with which services say that a request is over the model's context
// window, in lower case: vendors' codes first, then the texts of those that have none.
var overflowing = []string{
	"context_length_exceeded",            // OpenAI, and services that follow it
	"model_context_window_exceeded",      // Z.ai, Anthropic's stop reason
	"exceed_context_size_error",          // llama.cpp
	"prompt is too long",                 // Anthropic, Bedrock
	"input is too long",                  // Bedrock
	"exceed context limit",               // Anthropic: input length and max_tokens exceed context limit
	"maximum context length",             // OpenAI, vLLM, OpenRouter, DeepSeek
	"maximum model length",               // vLLM
	"exceeds the available context size", // llama.cpp
	"exceeds the context window",         // OpenAI's Responses, LM Studio
	"exceeds the model's context",        // vLLM, several
	"exceeded model token limit",         // Kimi
	"input length exceeds",               // Ollama
	"exceeds maximum context",            // Ollama
	"context window exceeded",
	"context length exceeded",
	"too many tokens in the prompt",
}

// overflows reports whether an error says that the request is over the model's context window.
func overflows(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(overflowing, func(s string) bool { return strings.Contains(text, s) })
}

// Message finds the message in the shapes of JSON errors that services use, and otherwise returns
// the body.
func Message(body string) string {
	var shape struct {
		Message string          `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal([]byte(body), &shape) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		var plain string
		switch {
		case shape.Message != "":
			return shape.Message
		case json.Unmarshal(shape.Error, &inner) == nil && inner.Message != "":
			return inner.Message
		case json.Unmarshal(shape.Error, &plain) == nil && plain != "":
			return plain
		}
	}
	return body
}

// retryAfter reads retry-after-ms and Retry-After (seconds or a date).
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
