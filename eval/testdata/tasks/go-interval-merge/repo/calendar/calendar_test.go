package calendar

import (
	"reflect"
	"testing"

	"example.test/project/interval"
)

func TestFree(t *testing.T) {
	got := Free(interval.Interval{From: 0, To: 100}, []interval.Interval{{From: 10, To: 50}, {From: 20, To: 30}})
	want := []interval.Interval{{From: 0, To: 10}, {From: 50, To: 100}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}
