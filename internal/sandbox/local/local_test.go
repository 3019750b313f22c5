package local_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if args := strings.Split(os.Getenv("CHOIR_TEST_CONTROL"), "|"); len(args) == 3 {
		fmt.Fprintln(os.Stderr, controlPlane(args[0], args[1], args[2]))
		os.Exit(1)
	}
	sandboxtest.Main(m)
}

func open(t testing.TB) *local.Driver {
	t.Helper()
	d, err := local.New(t.Context(), local.Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the driver: %v", err)
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	sandboxtest.Conformance(t, func(t *testing.T) sandbox.Driver { return open(t) })
}
