package main

import (
	"io"
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

// TestALinkOfWhatIsClaimedOnlySignsIn shows that a start of what somebody has signed in to before does not say that it makes
// the computer theirs.
func TestALinkOfWhatIsClaimedOnlySignsIn(t *testing.T) {
	for claimed, want := range map[bool]string{false: "Open this link once to make the computer yours:", true: "Sign in with this link, which works once:"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout := os.Stdout
		os.Stdout = w
		err = newAnnouncer(false, nil, func(upLine) {}).ready(upLine{URL: "http://console", ClaimURL: "http://console/claim#x", Claimed: claimed})
		os.Stdout = stdout
		_ = w.Close()
		said, rerr := io.ReadAll(r)
		if err != nil || rerr != nil || !strings.Contains(string(said), want) {
			t.Errorf("claimed %v: %q, %v %v", claimed, said, err, rerr)
		}
	}
}
