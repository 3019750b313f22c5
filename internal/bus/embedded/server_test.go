package embedded_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/bus/embedded"
)

func TestServerListensNowhere(t *testing.T) {
	dir := t.TempDir()
	s, err := embedded.Open(t.Context(), embedded.Options{Dir: filepath.Join(dir, "nats"), KeysDir: filepath.Join(dir, "keys"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if addr := s.ListenAddr(); addr != nil {
		t.Errorf("the server listens on %v", addr)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
