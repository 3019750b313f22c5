package e2e_test

import (
	"os"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

func TestMain(m *testing.M) {
	choirtest.Lanes(3)
	os.Exit(m.Run())
}
