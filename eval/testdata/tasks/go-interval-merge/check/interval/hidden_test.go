package interval

import (
	"reflect"
	"testing"
)

func TestHiddenMerge(t *testing.T) {
	for _, c := range []struct{ in, want []Interval }{
		{[]Interval{{0, 5}, {5, 9}}, []Interval{{0, 9}}},
		{[]Interval{{0, 9}, {2, 3}, {4, 5}}, []Interval{{0, 9}}},
		{[]Interval{{4, 6}, {0, 2}}, []Interval{{0, 2}, {4, 6}}},
		{nil, nil},
	} {
		in := append([]Interval(nil), c.in...)
		if got := Merge(c.in); !reflect.DeepEqual(got, c.want) {
			t.Errorf("Merge(%v) = %v, want %v", c.in, got, c.want)
		}
		if len(in) > 0 && !reflect.DeepEqual(in, c.in) {
			t.Errorf("Merge changed what it was given")
		}
	}
}
