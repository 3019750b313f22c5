package money

import "testing"

func TestHiddenSplit(t *testing.T) {
	for _, c := range []struct {
		cents int64
		n     int
	}{{100, 3}, {1, 4}, {0, 2}, {-100, 3}, {9007199254740993, 2}, {7, 7}} {
		got := Split(c.cents, c.n)
		sum := int64(0)
		for i, p := range got {
			sum += p
			if i > 0 && p > got[i-1] || got[0]-p > 1 {
				t.Errorf("Split(%d, %d) = %v", c.cents, c.n, got)
			}
		}
		if sum != c.cents || len(got) != c.n {
			t.Errorf("Split(%d, %d) = %v, which is %d", c.cents, c.n, got, sum)
		}
	}
	if Split(5, 0) != nil || Split(5, -1) != nil {
		t.Error("nobody gets something")
	}
}
