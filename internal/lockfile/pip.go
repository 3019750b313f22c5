package lockfile

import (
	"path"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
)

// pinned matches a requirement with one version and the hashes of its files.
var pinned = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9._, -]*\])?\s*==\s*[^\s;@*]+\s*(?:;[^\n]*?)?(?:\s+--hash=sha(?:256|384|512):[0-9a-f]{64,128})+\s*$`)

// pip reads a requirements.txt in which each line has hashes, as pip-compile and uv write
// it. A file without any hash is no lock file.
func (r *reading) pip() error {
	raw, err := r.lock()
	if err != nil {
		return err
	}
	text := string(raw)
	if !strings.Contains(text, "--hash=") {
		return fault.New("", fault.NotFound, "", nil)
	}
	var kept strings.Builder // the requirements as they were understood here
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if i := strings.Index(line, " #"); i >= 0 {
			line = strings.TrimSpace(line[:i])
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if (!pinned().MatchString(line) || strings.Count(line, "--") != strings.Count(line, "--hash=")) && !defence.Off(defence.LockHashes) {
			return invalid("%s has the line %q, which is no package of one version with its hashes", r.parsed.Name, clip(line))
		}
		kept.WriteString(line + "\n")
		r.parsed.Packages++
	}
	r.parsed.Files[path.Join(r.parsed.Dir, r.parsed.Name)] = []byte(kept.String())
	return nil
}
