package computer

import (
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/shell"
)

// onlyVolumes is a driver's computer that has volumes and no boxes.
type onlyVolumes struct {
	sandbox.Computer
	v *local.Volumes
}

func (o onlyVolumes) Volumes() sandbox.Volumes { return o.v }

// openVolumes opens the volumes of a directory; the caller closes them.
func openVolumes(t testing.TB, dir string) onlyVolumes {
	t.Helper()
	v, err := local.OpenVolumes(local.VolumesOptions{
		Dir: dir, Shared: filepath.Join(dir, "shared"), Caches: []string{boxes.DependenciesDir, shell.BuildsDir}, OnError: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return onlyVolumes{v: v}
}

// at returns the path of a volume.
func (o onlyVolumes) at(t testing.TB, v sandbox.Volume) string {
	t.Helper()
	p, err := o.v.Path(v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
