package boxes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/config"
)

func TestProgramsShowNobodysHome(t *testing.T) {
	home := t.TempDir()
	bin := filepath.Join(home, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	path, shown := Programs(bin+":/usr/bin:relative:/usr/no-such-folder", config.Runtime{})
	dirs := strings.Split(path, ":")
	if slices.Contains(dirs, bin) || len(shown) != 0 || dirs[0] != "/usr/bin" || slices.Contains(dirs, "relative") || slices.Contains(dirs, "/usr/no-such-folder") {
		t.Errorf("%v %v", dirs, shown)
	}
	path, shown = Programs("/usr/bin", config.Runtime{Path: []string{bin}})
	if !strings.HasPrefix(path, bin+":/usr/bin") || !slices.Equal(shown, []string{bin}) {
		t.Errorf("%s %v", path, shown)
	}
	path, shown = Programs("/usr/bin", config.Runtime{Path: []string{bin}, ReadOnly: []string{home}})
	if !strings.HasPrefix(path, bin+":") || !slices.Equal(shown, []string{home}) {
		t.Errorf("%s %v", path, shown)
	}
}
