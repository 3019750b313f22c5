package sandboxtest

import (
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
)

// testClear: a terminal's box that was cleared runs nothing of what was run in it,
// however it hid, and is fresh only when nothing is left outside its tree that the
// next command could meet.
func testClear(t *testing.T, e *Env) {
	for name, c := range map[string]struct {
		command string
		fresh   bool
	}{
		"nothing":                 {"true", true},
		"its tree":                {"echo x > /computer/x; mkdir /computer/d", true},
		"reads":                   {"ls -laR / >/dev/null 2>&1; cat /etc/passwd >/dev/null", true},
		"a daemon":                {"setsid sh -c 'while :; do :; done' >/dev/null 2>&1 & setsid setsid sleep 300 >/dev/null 2>&1 & exit 0", true},
		"what multiplies":         {"for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'while :; do sleep 0.001 & done' >/dev/null 2>&1 & done; exit 0", true},
		"what ignores signals":    {"setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' >/dev/null 2>&1 & exit 0", true},
		"a file in /tmp":          {"echo x > /tmp/x", false},
		"a file that was in /tmp": {"echo x > /tmp/x; rm /tmp/x", false},
		"shared memory":           {"echo x > /dev/shm/x", false},
		"a file at home":          {"echo x > ~/.bashrc", false},
		"a file deep at home":     {"mkdir -p ~/.config/a/b && echo x > ~/.config/a/b/c", false},
		"a limit of the guest":    {"prlimit --pid 1 --nofile=64:64", false},
		"the share of time":       {"renice -n 19 -p 1 >/dev/null", false},
		"a share of time apart":   {ProbeInside + " threads nice", false},
		"the scheduling policy":   {ProbeInside + " threads policy", false},
		"the class of disk I-O":   {ProbeInside + " threads disk", false},
		"processors":              {ProbeInside + " threads processor", false},
		"a message queue":         {ProbeInside + " queue", false},
		"whether /tmp is open":    {"chmod 1700 /tmp; chmod 1777 /tmp", false},
		"what is said of /tmp":    {ProbeInside + " said-of /tmp", false},
		"no more terminals":       {"chmod 0 /dev/pts/ptmx", false},
		"a terminal":              {"script -qc true /dev/null >/dev/null", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, g := e.Box(t, sandbox.BoxSpec{Kind: contract.BoxTerminal, Mounts: []sandbox.Mount{e.LiveMount()}})
			r := Run(t, g, "sh", "-c", c.command)
			if r.Code != 0 {
				t.Fatalf("%+v", r)
			}
			for range 2 {
				cleared, err := g.Clear(t.Context())
				if err != nil || cleared.Fresh != c.fresh {
					t.Errorf("cleared: %+v, %v", cleared, err)
				}
			}
			h, err := g.Health(t.Context())
			if err != nil || h.Processes != 1 {
				t.Errorf("there run %d processes: %v", h.Processes, err)
			}
			if r := Run(t, g, "sh", "-c", "ps -e -o stat,comm 2>/dev/null | grep -v '^Z' | grep -c sleep || true"); strings.TrimSpace(r.Out) != "0" {
				t.Errorf("of what was run there is %s", r.Out)
			}
		})
	}
	_, g := e.Box(t, sandbox.BoxSpec{Kind: contract.BoxTask})
	if cleared, err := g.Clear(t.Context()); err != nil || cleared.Fresh {
		t.Errorf("a task's box is %+v, %v", cleared, err)
	}
}
