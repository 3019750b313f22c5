package shell

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/newfile"
)

// themePath is where the theme lives in a workspace.
const themePath = "artifacts/system/theme.json"

// night is the theme of a new computer.
var night = contract.Theme{
	Name: "Night", Scheme: "dark", Radius: 10,
	Colors: map[string]string{
		"accent": "#d4af37", "background": "#0a0a0b", "border": "#28282c", "danger": "#ef6f66", "muted": "#98979e",
		"ok": "#62c08a", "surface": "#121214", "surface-raised": "#1a1a1d", "text": "#ececea", "warn": "#e8965a",
	},
}

const rootIgnore = `# What no checkpoint needs to hold. Files that one holds already stay in it.
node_modules/
.vite/
__pycache__/
.venv/
`

// Seed lays a new computer's workspace out at dir, which must not exist. No box
// has seen it yet, so the host may write it. It appears whole or not at all.
func Seed(dir string, shell fs.FS) error {
	const op = "shell.Seed"
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return fault.Wrap(op, err)
	}
	if err := os.CopyFS(filepath.Join(tmp, "choiros"), shell); err != nil {
		return fault.Wrap(op, err)
	}
	theme, err := json.MarshalIndent(night, "", "  ")
	if err != nil {
		return fault.Wrap(op, err)
	}
	for name, content := range map[string][]byte{
		themePath: append(theme, '\n'), ".gitignore": []byte(rootIgnore),
	} {
		path := filepath.Join(tmp, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fault.Wrap(op, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fault.Wrap(op, err)
		}
	}
	for _, name := range []string{"workspace", "choiros/node_modules"} {
		if err := os.MkdirAll(filepath.Join(tmp, name), 0o755); err != nil {
			return fault.Wrap(op, err)
		}
	}
	// Embedded files are read-only; a computer's own are not. All of it is on disk
	// before it has its name.
	err = filepath.WalkDir(tmp, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
	if err == nil {
		err = newfile.Sync(tmp)
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fault.Wrap(op, err)
	}
	return durable.SyncDir(filepath.Dir(dir))
}
