package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"choir.dev/choiros/internal/fault"
)

func TestCodeAndHintAreFoundInTheTree(t *testing.T) {
	full := fault.New("open", fault.DiskFull, "Free some space.", errors.New("x"))
	for name, err := range map[string]error{
		"itself":       full,
		"wrapped":      fault.Wrap("outer", fmt.Errorf("more: %w", full)),
		"joined":       errors.Join(errors.New("close"), full),
		"joined first": fault.Wrap("outer", errors.Join(full, errors.New("close"))),
	} {
		if fault.CodeOf(err) != fault.DiskFull || fault.HintOf(err) != "Free some space." || !fault.Is(err, fault.DiskFull) {
			t.Errorf("%s: code %s, hint %q", name, fault.CodeOf(err), fault.HintOf(err))
		}
	}
	outer := fault.New("outer", fault.NotFound, "", full)
	if fault.CodeOf(outer) != fault.NotFound || fault.HintOf(outer) != "Free some space." {
		t.Errorf("the outer code should win and the inner hint be found: %s %q", fault.CodeOf(outer), fault.HintOf(outer))
	}
	for err, want := range map[error]fault.Code{
		context.Canceled: fault.Cancelled, context.DeadlineExceeded: fault.Timeout, errors.New("x"): fault.Internal,
	} {
		if got := fault.CodeOf(fault.Wrap("op", err)); got != want {
			t.Errorf("%v has code %s, want %s", err, got, want)
		}
	}
	if fault.Is(nil, fault.Internal) || fault.HintOf(nil) != "" || fault.Wrap("op", nil) != nil {
		t.Error("nil is no error")
	}
}
