package problem_test

import (
	"errors"
	"testing"

	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// TestEveryCodeHasAStatus shows that each kind of refusal has a status and a title of its own, and
// that our own faults are 500.
func TestEveryCodeHasAStatus(t *testing.T) {
	for _, code := range fault.Codes() {
		p := problem.New(0, view.Describe(fault.New("", code, "Do this.", errors.New("why"))))
		if p.Status < 400 || p.Status == 500 && code != fault.Damaged || p.Title == "" || p.Code != string(code) || p.Detail != "why" {
			t.Errorf("%s: %+v", code, p)
		}
	}
	for code, want := range map[fault.Code]int{fault.DiskFull: 507, fault.Unavailable: 503, fault.Invalid: 422, "unheard": 500} {
		if p := problem.New(0, view.Describe(fault.New("", code, "", errors.New("/secret/path")))); p.Status != want || (p.Detail == "/secret/path") != (want != 500) {
			t.Errorf("%s: %+v", code, p)
		}
	}
}
