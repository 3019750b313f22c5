package view

import (
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// Refusal is what whoever asked is told of an error: why, with the fault's code, a hint for
// a person and the field that is wrong.
type Refusal struct {
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`
	Hint   string `json:"hint,omitempty"`
	Field  string `json:"field,omitempty"`
}

// maxDetail bounds what an error says to a caller, in bytes.
const maxDetail = 2000

// Describe returns what a caller is told of an error. An error without a code is a fault of
// ours, with code internal: its text may name internals, so it is left out, and whoever
// calls Describe logs it.
func Describe(err error) Refusal {
	code := fault.CodeOf(err)
	field := contract.AsFieldError(err)
	if field != nil && code == fault.Internal {
		code = fault.Invalid
	}
	if !slices.Contains(fault.Codes(), code) {
		return Refusal{Code: string(fault.Internal), Hint: fault.HintOf(err), Detail: "Something went wrong inside; the server's log says what."}
	}
	r := Refusal{Code: string(code), Hint: fault.HintOf(err), Detail: message(err)}
	if field != nil {
		r.Field = field.Field
	}
	return r
}

// message is the error's text, bounded.
func message(err error) string {
	s := fault.Text(err)
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}
