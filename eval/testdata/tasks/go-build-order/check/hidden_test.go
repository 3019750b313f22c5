package order

import (
	"errors"
	"slices"
	"testing"
)

func TestHiddenPlan(t *testing.T) {
	text := "# all\n\napp: lib  log # both\nlib : base\nlog:base\nbase:\nlib: extra\n"
	want := []string{"base", "extra", "lib", "log", "app"}
	for range 20 {
		got, err := Plan(text)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %v, %v; want %v", got, err, want)
		}
	}
}

func TestHiddenCycle(t *testing.T) {
	_, err := Plan("a: b\nb: c\nc: b\n")
	var cycle *CycleError
	if !errors.As(err, &cycle) || !slices.Equal(cycle.Path, []string{"b", "c", "b"}) {
		t.Errorf("got %v", err)
	}
}
