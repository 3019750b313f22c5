package mounts

import (
	"slices"
	"testing"

	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/workspace"
)

// TestAChecksBoxHasNothingThatTheTaskInstalled shows that the ignored directories of a check's box
// are the user's, with a throwaway upper, and that none contains what the task wrote into its own
// layer of them.
func TestAChecksBoxHasNothingThatTheTaskInstalled(t *testing.T) {
	ignored := []workspace.IgnoredDir{
		{Path: "workspace/p/node_modules", Lower: sandbox.Live("workspace/p/node_modules"), Upper: sandbox.Written("t-1").At("ignored/a")},
		{Path: shell.ModulesPath, Lower: sandbox.Live("choiros/node_modules"), Upper: sandbox.Written("t-1").At("ignored/b")},
	}
	mounts := usersOwn(ignored)
	if len(mounts) != 1 || mounts[0].Target != "/computer/workspace/p/node_modules" || mounts[0].Mode != sandbox.Overlay || !slices.Equal(mounts[0].Lower, []sandbox.Volume{ignored[0].Lower}) {
		t.Fatalf("%+v", mounts)
	}
	for _, m := range mounts {
		for _, v := range append(slices.Clone(m.Lower), m.Source, m.Upper) {
			if v.Kind == sandbox.VolumeOverlay {
				t.Errorf("the check's box sees %s, which the task wrote", v)
			}
		}
	}
}
