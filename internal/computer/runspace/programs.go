package runspace

import (
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/dispatch/ports"
)

// Programs are the agent programs that the owner has configured.
func Programs(agents map[string]config.Agent) map[string]ports.Program {
	out := map[string]ports.Program{}
	for name, a := range agents {
		out[name] = ports.Program{Command: a.Command, Env: a.Environ()}
	}
	return out
}
