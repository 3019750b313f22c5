package computer

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

// openDesktop opens the desktop's box: live choiros/ read-only, the shell's
// dependencies read-only, no network.
func (c *Computer) openDesktop(ctx context.Context) (sandbox.Box, error) {
	if err := InBoxes("node", "Install Node.js 20.19 or newer; until then the kept build of the desktop is served."); err != nil {
		return nil, err
	}
	tree, err := c.modules(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.ensureModulesDir(ctx); err != nil {
		return nil, err
	}
	return c.box(ctx, sandbox.BoxSpec{
		ID: "desktop", Kind: contract.BoxDesktop, Root: "/computer/choiros",
		Mounts: []sandbox.Mount{
			{Source: c.path("workspace", "choiros"), Target: "/computer/choiros", Mode: sandbox.ReadOnly},
			{Source: tree, Target: "/computer/choiros/node_modules", Mode: sandbox.ReadOnly},
		},
		Limits: c.limits(),
	})
}

// InBoxes fails with fault.Missing and the hint when boxes don't have a program:
// they see the host's /usr.
func InBoxes(program, hint string) error {
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if st, err := os.Stat(filepath.Join(dir, program)); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return nil
		}
	}
	return fault.New("", fault.Missing, hint, fmt.Errorf("%s is not installed", program))
}

// noWatches says what to do about watchers of files when none are left.
func (c *Computer) noWatches(ctx context.Context) string {
	for _, f := range c.host.Driver.Doctor(ctx) {
		if f.ID == sandbox.NoWatches {
			return f.Hint
		}
	}
	return ""
}

// ensureModulesDir makes the mount point for the shell's dependencies, which
// git ignores and a restore may leave out.
func (c *Computer) ensureModulesDir(ctx context.Context) error {
	return c.workspace.Mkdir(ctx, shellModulesPath)
}

// Look implements control.Desktop.
func (c *Computer) Look(context.Context) (release func()) { return c.live.look() }

// Live implements control.Desktop.
func (c *Computer) Live(context.Context) (http.RoundTripper, error) { return c.live.transport() }
