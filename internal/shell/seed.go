package shell

import (
	"context"
	"encoding/json"
	"io/fs"
	"path"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

// themePath is the theme's file in a workspace.
const themePath = "artifacts/system/theme.json"

// defaultTheme is the theme of a new computer.
var defaultTheme = contract.Theme{
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

// Seed makes the tree of a new computer, which has none. It appears whole or not at all.
func Seed(ctx context.Context, v sandbox.Volumes, source fs.FS) error {
	const op = "shell.Seed"
	seed := sandbox.Output("seed")
	if err := v.Discard(ctx, seed); err != nil {
		return fault.Wrap(op, err)
	}
	for _, dir := range []string{"workspace", "choiros/node_modules"} {
		if err := v.Make(ctx, seed.At(dir)); err != nil {
			return fault.Wrap(op, err)
		}
	}
	theme, err := json.MarshalIndent(defaultTheme, "", "  ")
	if err != nil {
		return fault.Wrap(op, err)
	}
	for name, content := range map[string][]byte{themePath: append(theme, '\n'), ".gitignore": []byte(rootIgnore)} {
		if err := v.Put(ctx, seed, name, content, 0o644); err != nil {
			return fault.Wrap(op, err)
		}
	}
	err = fs.WalkDir(source, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return v.Make(ctx, seed.At(path.Join("choiros", name)))
		}
		content, err := fs.ReadFile(source, name)
		if err != nil {
			return err
		}
		return v.Put(ctx, seed, path.Join("choiros", name), content, 0o644)
	})
	if err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, v.Keep(ctx, seed, sandbox.Live("")))
}
