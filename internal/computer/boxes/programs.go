package boxes

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/sandbox"
)

// usual is the part of PATH that boxes have on every machine.
const usual = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/go/bin"

// Programs returns the PATH of boxes, and the directories outside of /usr that they see for
// it, read-only: what is configured, then what choir's own PATH names under /usr and /opt,
// in its order. Other directories, such as those in somebody's home, are shown only when
// they are configured: there may be keys beside the programs.
func Programs(hostPath string, r config.Runtime) (boxPath string, shown []string) {
	var dirs []string
	add := func(dir string) bool {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || slices.Contains(dirs, dir) {
			return false
		}
		dirs = append(dirs, dir)
		return true
	}
	show := func(dir string) {
		info, err := os.Lstat(dir)
		inside := func(d string) bool { return dir == d || strings.HasPrefix(dir, d+"/") }
		if err == nil && info.IsDir() && !inside("/usr") && !slices.ContainsFunc(shown, inside) {
			shown = append(shown, dir)
		}
	}
	for _, dir := range r.ReadOnly {
		show(dir)
	}
	for _, dir := range r.Path {
		if add(dir) {
			show(dir)
		}
	}
	for _, dir := range filepath.SplitList(hostPath + ":" + usual) {
		if dir = path.Clean(dir); !path.IsAbs(dir) {
			continue
		}
		parts := strings.Split(dir, "/") // "", "opt", name, …
		switch {
		case parts[1] == "opt" && len(parts) > 2:
			if add(dir) {
				show("/opt/" + parts[2])
			}
		case parts[1] == "usr", slices.Contains([]string{"/bin", "/sbin"}, dir):
			add(dir)
		}
	}
	return strings.Join(dirs, ":"), shown
}

// HomeInside is the HOME of a box's programs.
const HomeInside = "/home/choir"

// Home is the mount of a box's HOME: on disk, under its disk limit, and dropped with the
// box. Builds and their caches need more than fits into memory.
func (c *Boxes) Home(ctx context.Context) (sandbox.Mount, error) {
	lower, err := warmHome(ctx, c.Volumes())
	return sandbox.Mount{Target: HomeInside, Mode: sandbox.Overlay, Lower: []sandbox.Volume{lower}}, err
}
