package attack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// keeperRows are trees that would stop the keeper, which every task and command needs.
var keeperRows = []Row{
	{
		Number: 43, Attack: "one .gitignore has more patterns, each of more stars, than can be followed",
		Defences: []defence.Name{defence.KeeperIgnoreBudget},
		Run: func(t *testing.T) Verdict {
			e, root := newKeeper(t)
			lines := "victim\n" + strings.Repeat(strings.Repeat("*a", 40)+"b\n", 2100)
			put(t, root, "workspace/p/.gitignore", lines)
			put(t, root, "workspace/p/victim", "work\n")
			r, err := e.Checkpoint(t.Context(), wire.CheckpointRequest{})
			if err != nil {
				return Verdict{true, err.Error()}
			}
			// If the chain is followed to its end, it hides the file.
			_, err = e.Object(t.Context(), wire.ObjectRequest{Commit: r.Commit.Commit, Path: "workspace/p/victim"})
			return Verdict{err != nil, fmt.Sprintf("left out: %v", r.Left)}
		},
	},
	{
		Number: 43, Attack: "a chain of folders is deeper than any path",
		Defences: []defence.Name{defence.KeeperDepth},
		Run: func(t *testing.T) Verdict {
			e, root := newKeeper(t)
			dir, err := os.OpenRoot(root)
			for i := 0; i < 2100 && err == nil; i++ {
				if err = dir.Mkdir("d", 0o755); err == nil {
					var next *os.Root
					if next, err = dir.OpenRoot("d"); err == nil {
						err = dir.Close()
						dir = next
					}
				}
			}
			if err == nil {
				err = dir.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = e.Checkpoint(t.Context(), wire.CheckpointRequest{})
			return Verdict{err != nil, fmt.Sprintf("a checkpoint: %v", err)}
		},
	},
	{
		Number: 43, Attack: "a folder is closed while a task works on what is in it",
		Defences: []defence.Name{defence.KeeperDeniedPaths},
		NotAs:    map[string]string{"root": "modes"},
		Run: func(t *testing.T) Verdict {
			e, root := newKeeper(t)
			put(t, root, "workspace/p/file", "one\n")
			base, err := e.Checkpoint(t.Context(), wire.CheckpointRequest{})
			if err != nil {
				t.Fatal(err)
			}
			put(t, root, "workspace/p/file", "two\n")
			theirs, err := e.Checkpoint(t.Context(), wire.CheckpointRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Restore(t.Context(), wire.RestoreRequest{ID: "back", To: base.Commit.Commit}); err != nil {
				t.Fatal(err)
			}
			closed := filepath.Join(root, "workspace/p")
			if err := os.Chmod(closed, 0o555); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.Chmod(closed, 0o755); err != nil {
					t.Error(err)
				}
			}()
			if _, err := e.Prepare(t.Context(), wire.PrepareRequest{ID: "p", Base: base.Commit.Commit, Tree: theirs.Commit.Commit}); err != nil {
				t.Fatal(err)
			}
			_, publish := e.Apply(t.Context(), "p")
			_, later := e.Checkpoint(t.Context(), wire.CheckpointRequest{})
			return Verdict{later != nil, fmt.Sprintf("the publish: %v; a checkpoint after it: %v", publish, later)}
		},
	},
}

// newKeeper opens an engine on a tree of its own.
func newKeeper(t *testing.T) (*engine.Engine, string) {
	t.Helper()
	dir := t.TempDir()
	o := engine.Options{Root: filepath.Join(dir, "live"), Snapshots: filepath.Join(dir, "snapshots"), Uppers: filepath.Join(dir, "uppers")}
	for _, d := range []string{o.Root, o.Snapshots, o.Uppers} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, o.Root
}

func put(t *testing.T, root, p, content string) {
	t.Helper()
	name := filepath.Join(root, p)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
