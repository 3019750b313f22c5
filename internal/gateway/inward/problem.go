package inward

import (
	"context"
	"errors"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/gateway/provider"
)

// Codes of a TurnError that only this package uses.
const (
	codeToken     = "token"      // the token is missing, or is not the box's
	codeNoAddress = "no_address" // nothing is served there
)

// turnError makes a TurnError of any error, without saying more than it should.
func turnError(err error) *contract.TurnError {
	var te *contract.TurnError
	switch {
	case errors.As(err, &te):
		return te
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &contract.TurnError{Code: gateway.CodeCancelled, Message: "the call was given up: its run or its box ends"}
	}
	return &contract.TurnError{Code: provider.CodeUnavailable, Message: fault.Text(err), Retriable: fault.Is(err, fault.Unavailable)}
}

func noModel(err error) *contract.TurnError {
	var te *contract.TurnError
	if errors.As(err, &te) {
		return te
	}
	return &contract.TurnError{Code: provider.CodeNoModel, Message: fault.Text(err)}
}

// shape is how the vendors say an error.
type shape struct {
	status    int
	anthropic string // error.type
	openai    string // error.type
	code      string // error.code of OpenAI; "" is null
}

// shapeOf returns how an error is said. What the vendors' clients decide on is the status, the types,
// and, for a conversation that is too long, words and code.
func shapeOf(te *contract.TurnError) shape {
	switch te.Code {
	case codeToken:
		return shape{http.StatusUnauthorized, "authentication_error", "invalid_request_error", "invalid_api_key"}
	case codeNoAddress:
		return shape{http.StatusNotFound, "not_found_error", "invalid_request_error", "not_found"}
	case provider.CodeNoModel:
		return shape{http.StatusNotFound, "not_found_error", "invalid_request_error", "model_not_found"}
	case provider.CodeBudget:
		return shape{http.StatusPaymentRequired, "billing_error", "insufficient_quota", "insufficient_quota"}
	case provider.CodeOverflow:
		return shape{http.StatusBadRequest, "invalid_request_error", "invalid_request_error", "context_length_exceeded"}
	case provider.CodeTooLarge:
		return shape{http.StatusRequestEntityTooLarge, "request_too_large", "invalid_request_error", "request_too_large"}
	case provider.CodeInvalid:
		return shape{http.StatusBadRequest, "invalid_request_error", "invalid_request_error", ""}
	case provider.CodeRateLimited:
		return shape{http.StatusTooManyRequests, "rate_limit_error", "rate_limit_error", "rate_limit_exceeded"}
	case provider.CodeTimeout:
		return shape{http.StatusGatewayTimeout, "timeout_error", "server_error", "timeout"}
	case gateway.CodeMalformed:
		return shape{http.StatusBadGateway, "api_error", "server_error", "malformed"}
	}
	return shape{http.StatusServiceUnavailable, "api_error", "server_error", te.Code}
}

// message returns what went wrong, with the vendor's own words where clients look for those.
func message(te *contract.TurnError, theirs string) string {
	if te.Code == provider.CodeOverflow {
		return theirs + ": " + te.Message
	}
	return te.Message
}

// fail answers a request with an error. The vendors' SDKs do by x-should-retry what it says, whatever
// the status: what no repetition helps against is not repeated.
func fail(w http.ResponseWriter, f format, te *contract.TurnError) {
	h := w.Header()
	status := shapeOf(te).status
	if _, anthropic := f.(messages); te.Code == provider.CodeBudget && !anthropic {
		status = http.StatusTooManyRequests // with which OpenAI says that a quota is used up
	}
	if te.Retriable {
		h.Set("X-Should-Retry", "true")
		h.Set("Retry-After", retryAfter)
	} else {
		h.Set("X-Should-Retry", "false")
	}
	writeJSON(w, status, f.problem(te))
}
