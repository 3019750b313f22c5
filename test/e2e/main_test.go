package e2e_test

import (
	"os"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(writerInBox) != "" {
		if err := writeInBox(); err != nil {
			panic(err)
		}
		return
	}
	choirtest.Lanes(3)
	os.Exit(m.Run())
}
