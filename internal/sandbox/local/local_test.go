package local_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if args := strings.Split(os.Getenv("CHOIR_TEST_CONTROL"), "|"); len(args) == 3 {
		fmt.Fprintln(os.Stderr, controlPlane(args[0], args[1], args[2]))
		os.Exit(1)
	}
	sandboxtest.Main(m)
}

func open(t testing.TB) *local.Driver {
	t.Helper()
	d, err := local.New(t.Context(), local.Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the driver: %v", err)
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	sandboxtest.Conformance(t, func(t *testing.T) sandbox.Driver { return open(t) })
}

// TestASharedFolderMayLieElsewhere: the person who runs choir may move what all computers share to
// another disk and leave a link to it.
func TestASharedFolderMayLieElsewhere(t *testing.T) {
	data, elsewhere := t.TempDir(), t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(data, "modules")); err != nil {
		t.Fatal(err)
	}
	v, err := local.OpenVolumes(local.VolumesOptions{Dir: t.TempDir(), Shared: data, OnError: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, filled, kept := t.Context(), sandbox.SharedCache("modules/.fill"), sandbox.SharedCache("modules/one")
	for range 2 { // the second one replaces the first
		if err := errors.Join(v.Make(ctx, filled), v.Put(ctx, filled, "m", []byte("m"), 0o644), v.Keep(ctx, filled, kept)); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(elsewhere, "one", "m")); string(b) != "m" {
		t.Errorf("%q, %v", b, err)
	}
	if list, err := v.List(ctx, sandbox.SharedCache("modules")); err != nil || len(list) != 1 || list[0].Name != "one" {
		t.Errorf("%+v, %v", list, err)
	}
	// A link in a place that a box could have written to is not followed.
	if err := os.Symlink(t.TempDir(), filepath.Join(elsewhere, "two")); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Exists(ctx, sandbox.SharedCache("modules/two")); !fault.Is(err, fault.Denied) {
		t.Errorf("a link is taken for a volume: %v", err)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}

// TestASharedFolderThatIsForReading shows that an ordinary user can use a shared folder that root
// owns.
func TestASharedFolderThatIsForReading(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		data, elsewhere := t.TempDir(), t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(elsewhere, "one"), 0o755), os.Chmod(elsewhere, 0o555), os.Symlink(elsewhere, filepath.Join(data, "modules"))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(elsewhere, 0o755) })
		v, err := local.OpenVolumes(local.VolumesOptions{Dir: t.TempDir(), Shared: data})
		if err != nil {
			t.Fatal(err)
		}
		if there, err := v.Exists(t.Context(), sandbox.SharedCache("modules/one")); err != nil || !there {
			t.Errorf("it is there: %t, %v", there, err)
		}
		if err := v.Discard(t.Context(), sandbox.SharedCache("modules/two")); err != nil {
			t.Errorf("what is not there is discarded already: %v", err)
		}
		if os.Geteuid() != 0 {
			if err := v.Discard(t.Context(), sandbox.SharedCache("modules/one")); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("discarded: %v", err)
			}
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}
