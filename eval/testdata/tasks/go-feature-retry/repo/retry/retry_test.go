package retry

import "testing"

func TestErrFinal(t *testing.T) {
	if ErrFinal.Error() != "final" {
		t.Fatal(ErrFinal)
	}
}
