package text

import (
	"slices"
	"testing"
)

func TestWrap(t *testing.T) {
	if got := Wrap("to be or not", 5); !slices.Equal(got, []string{"to be", "or", "not"}) {
		t.Errorf("got %q", got)
	}
}

func TestNothing(t *testing.T) {
	if got := Wrap("", 5); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}
