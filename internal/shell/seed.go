package shell

import (
	"context"
	"encoding/json"
	"io/fs"
	"path"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/contract/themes"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

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
	theme, err := json.MarshalIndent(themes.All()[0], "", "  ")
	if err != nil {
		return fault.Wrap(op, err)
	}
	for name, content := range map[string][]byte{contract.ThemePath: append(theme, '\n'), ".gitignore": []byte(rootIgnore)} {
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
