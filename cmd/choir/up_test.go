package main

import (
	"os"
	"strings"
	"testing"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/process"
)

// TestASecondUpSaysWhereTheFirstIs shows that a second start is refused before it listens: the
// address that this test gives could not be listened on.
func TestASecondUpSaysWhereTheFirstIs(t *testing.T) {
	cfg := config.Config{}
	cfg.Server.Data, cfg.Server.Listen = t.TempDir(), "nowhere"
	if err := client.WriteRuntime(cfg.Server.Data, client.Runtime{URL: "http://first", PID: os.Getpid(), Process: process.Self()}); err != nil {
		t.Fatal(err)
	}
	err := up(t.Context(), cfg, nil, announcer{})
	if !fault.Is(err, fault.InUse) || !strings.Contains(err.Error(), cfg.Server.Data+" is in use: choir already runs there, at http://first") {
		t.Errorf("%v", err)
	}
}
