package nested

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Head reads which commit a repository's HEAD names, as plain data.
func Head(dir string) string {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	read := func(name string, max int) string {
		f, err := root.Open(filepath.Join(".git", name))
		if err != nil {
			return ""
		}
		defer f.Close()
		if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
			return ""
		}
		b, err := io.ReadAll(io.LimitReader(f, int64(max)))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	head := read("HEAD", 1024)
	if ref, ok := strings.CutPrefix(head, "ref: "); ok {
		head = ""
		if strings.HasPrefix(ref, "refs/") && wire.CheckPath(ref, false) == nil {
			head = read(ref, 128)
			for line := range strings.SplitSeq(read("packed-refs", 16<<20), "\n") {
				if id, name, ok := strings.Cut(line, " "); ok && name == ref && head == "" {
					head = id
				}
			}
		}
	}
	if !wire.IsHex(head) || (len(head) != 40 && len(head) != 64) {
		return ""
	}
	return head
}
