package contract_test

import (
	"testing"

	"choir.dev/choiros/contract"
)

// TestAValueOfAnotherKindIsNamed shows that a field of another type than its own is refused in words of JSON, not of Go.
func TestAValueOfAnotherKindIsNamed(t *testing.T) {
	for data, want := range map[string]string{
		`{"for_ms": true, "why": "stopped"}`: "is a boolean; it must be a whole number",
		`{"for_ms": [], "why": "stopped"}`:   "is an array; it must be a whole number",
		`{"for_ms": 1, "why": {}}`:           "is an object; it must be a string",
	} {
		_, err := contract.DecodeData("run.stood", []byte(data))
		fe := contract.AsFieldError(err)
		if fe == nil || fe.Reason != want {
			t.Errorf("%s: %v; want %q", data, err, want)
		}
	}
}
