package embedded_test

import (
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/bus/bustest"
)

func TestSuite(t *testing.T) {
	dir := t.TempDir()
	bustest.Run(t, func(t testing.TB) *bus.Bus {
		b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), KeysDir: filepath.Join(dir, "keys")})
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}
