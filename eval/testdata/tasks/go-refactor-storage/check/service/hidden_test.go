package service

import (
	"os"
	"strings"
	"testing"

	"example.test/project/store"
)

type fake struct{ n int }

func (f *fake) Add(string, int) int { f.n += 10; return f.n }

func TestHiddenService(t *testing.T) {
	var s Store = &fake{}
	if got := New(s).Visit("a"); got != "a, visit 10" {
		t.Errorf("got %q", got)
	}
	m := store.NewMemory()
	v := New(m)
	v.Visit("b")
	if got := v.Visit("b"); got != "b, visit 2" {
		t.Errorf("got %q", got)
	}
	b, err := os.ReadFile("service.go")
	if err != nil || strings.Contains(string(b), "project/store") {
		t.Error("package service still imports the store")
	}
}
