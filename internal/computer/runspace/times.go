package runspace

import (
	"time"

	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/dispatch/ports"
)

// Times is how long runs wait, as it is configured.
func Times(c config.Config) ports.Times {
	silence := time.Duration(c.Runtime.SilenceS) * time.Second
	return ports.Times{Approval: time.Duration(c.Approvals.WaitS) * time.Second, Silence: silence, Heartbeat: min(2*time.Second, silence/4), Park: time.Duration(c.Loops.ParkS) * time.Second}
}
