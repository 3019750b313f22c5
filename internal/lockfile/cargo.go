package lockfile

import (
	"path"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"choir.dev/choiros/internal/defence"
)

// cargo reads Cargo.toml and Cargo.lock, and the manifests of the workspace's crates. Cargo
// requires a crate to have source code before it fetches the crate's dependencies, so each
// gets an empty source file.
func (r *reading) cargo() error {
	raw, err := r.lock()
	if err != nil {
		return err
	}
	var lock struct {
		Package []struct{ Name, Source, Checksum string }
	}
	if err := toml.Unmarshal(raw, &lock); err != nil {
		return invalid("%s: %w", r.parsed.Name, err)
	}
	for _, p := range lock.Package {
		if p.Source == "" {
			continue // a crate of the workspace
		}
		r.parsed.Packages++
		if defence.Off(defence.LockHashes) {
			continue
		}
		if !strings.HasPrefix(p.Source, "registry+https://") && !strings.HasPrefix(p.Source, "sparse+https://") {
			return invalid("%s takes %s from %q; only crates of a registry, over https, are installed for a check", r.parsed.Name, clip(p.Name), clip(p.Source))
		}
		if strings.ContainsAny(p.Source, "@?#") {
			r.parsed.Own = "an address in it may hold a secret"
		}
		if len(p.Checksum) != 64 {
			return invalid("%s holds no hash of %s", r.parsed.Name, clip(p.Name))
		}
	}
	return r.crate(".", map[string]bool{})
}

func (r *reading) crate(dir string, seen map[string]bool) error {
	if seen[path.Clean(dir)] {
		return nil
	}
	seen[path.Clean(dir)] = true
	b, err := r.file(path.Join(dir, "Cargo.toml"), maxManifest)
	if err != nil {
		return err
	}
	var m map[string]any
	if err := toml.Unmarshal(b, &m); err != nil {
		return invalid("Cargo.toml: %w", err)
	}
	if _, ok := m["package"]; ok {
		for _, name := range []string{"src/lib.rs", "src/main.rs"} {
			p, err := r.in(path.Join(dir, name))
			if err != nil {
				return err
			}
			r.parsed.Files[p] = []byte("fn main() {}\n")
		}
	}
	var dirs []string
	if w, ok := m["workspace"].(map[string]any); ok {
		members, _ := w["members"].([]any)
		for _, v := range members {
			s, _ := v.(string)
			if strings.ContainsAny(s, "*?[") {
				return invalid("Cargo.toml names the crates of its workspace by a pattern, %q, which is not looked up", clip(s))
			}
			dirs = append(dirs, s)
		}
	}
	dirs = append(dirs, paths(m, 0)...)
	for _, d := range dirs {
		if path.IsAbs(d) {
			return invalid("Cargo.toml names the folder %q, which is not in the workspace", clip(d))
		}
		if err := r.crate(path.Join(dir, d), seen); err != nil {
			return err
		}
	}
	return nil
}

// paths returns the folders of path dependencies in all of a manifest's tables.
func paths(m map[string]any, depth int) (out []string) {
	for key, v := range m {
		table, ok := v.(map[string]any)
		if !ok || depth > 6 {
			continue
		}
		if strings.HasSuffix(key, "dependencies") || key == "crates-io" {
			for _, d := range table {
				if spec, ok := d.(map[string]any); ok {
					if p, ok := spec["path"].(string); ok {
						out = append(out, p)
					}
				}
			}
		}
		out = append(out, paths(table, depth+1)...)
	}
	return out
}
