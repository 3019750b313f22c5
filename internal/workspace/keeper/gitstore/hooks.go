package gitstore

import (
	"os"
	"path/filepath"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/names"
)

// prePush keeps stock git from pushing history with large files: a manifest means something
// on this computer only, and whoever got it would not have the bytes. It checks every
// commit that would be new at the remote, as a collection of chunks does; if that can't be
// determined it refuses as well.
const prePush = `#!/bin/sh
# Written by the computer's keeper, and kept as it is.
refuse() {
	echo "choir: this push is refused: $1" >&2
	exit 1
}
while read -r local_ref local remote_ref remote; do
	case "$local" in *[!0]*) ;; *) continue ;; esac
	not=
	if git cat-file -e "$remote^{commit}" 2>/dev/null; then not="^$remote"; fi
	git rev-parse --verify --quiet "$local^{commit}" >/dev/null || refuse "$local_ref is no commit"
	commits=$(git rev-list "$local" $not --) || refuse "what $local_ref holds can't be told"
	found=$(echo "$commits" | git -c core.quotePath=false diff-tree --stdin --root -r -m --name-only --no-commit-id --no-renames --diff-filter=d -- ':(top,glob)**/*` + names.ChunkSuffix + `') ||
		refuse "what $local_ref holds can't be told"
	[ -z "$found" ] && continue
	echo "choir: $local_ref holds large files, whose content is kept beside git on this computer only:" >&2
	echo "$found" | sed 's/` + "\\.chunks\\.choir" + `$//' | sort -u | head -n 20 >&2
	refuse "those who fetch it would have none of their bytes. Push a history without these files."
done
exit 0
`

// pushHook is the name of the one hook there is.
const pushHook = "pre-push"

// keepHooks installs the hooks for stock git and removes all others. (The engine's own git
// runs none.)
func (s *Store) keepHooks() error {
	dir := filepath.Join(s.gitDir, "hooks")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, en := range entries {
		if en.Name() != pushHook || !en.Type().IsRegular() {
			if err := disk.RemoveTree(filepath.Join(dir, en.Name())); err != nil {
				return err
			}
		}
	}
	if err := disk.KeepFile(filepath.Join(dir, pushHook), prePush); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(dir, pushHook), 0o755)
}
