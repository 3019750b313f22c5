package boxes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

// homeWarmer keeps a HOME in which Go has compiled its standard library once: with an empty
// build cache that takes a quarter of a minute, and every check has a new box. Nothing of a
// workspace is ever built or run in it, so no tree can leave anything in it for the checks
// of another.
type homeWarmer struct {
	mu  sync.Mutex
	not bool // it was tried and failed; the next start tries again
}

// warmBuild is a module that needs what tests commonly need.
const warmBuild = `set -e
mkdir -p /tmp/warm && cd /tmp/warm
printf 'module warm\n\ngo 1.21\n' > go.mod
cat > warm_test.go <<'END'
package warm

import (
	_ "bufio"
	_ "bytes"
	_ "context"
	_ "encoding/json"
	_ "errors"
	_ "fmt"
	_ "io"
	_ "math"
	_ "os"
	_ "path/filepath"
	_ "regexp"
	_ "slices"
	_ "sort"
	_ "strconv"
	_ "strings"
	_ "sync"
	"testing"
	_ "time"
)

func TestWarm(*testing.T) {}
END
go test ./...
`

// warmHome is the prepared HOME for this machine's Go, or an empty one.
func warmHome(ctx context.Context, v sandbox.Volumes) (sandbox.Volume, error) {
	if final, err := finalHome(); err == nil {
		if there, err := v.Exists(ctx, final); err == nil && there {
			return final, nil
		}
	}
	empty := sandbox.SharedCache("home")
	return empty, v.Make(ctx, empty)
}

// finalHome is where the HOME for this machine's Go is or will be.
func finalHome() (sandbox.Volume, error) {
	for _, root := range []string{"/usr/local/go", "/usr/lib/go"} {
		b, err := os.ReadFile(filepath.Join(root, "VERSION"))
		if err != nil {
			continue
		}
		version, _, _ := strings.Cut(string(b), "\n")
		if version = strings.TrimSpace(version); version != "" && filepath.Base(version) == version && len(version) < 40 {
			if home := sandbox.SharedCache("home-" + version); home.Validate() == nil {
				return home, nil
			}
		}
	}
	return sandbox.Volume{}, fs.ErrNotExist
}

// Warm builds that HOME when it is not there. Without it checks only take longer.
func (c *Boxes) Warm(ctx context.Context) (err error) {
	w := &c.options.Machine.warmth
	w.mu.Lock()
	defer w.mu.Unlock()
	final, err := finalHome()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is no Go, or not where its version is known
	}
	volumes := c.Volumes()
	if there, err := volumes.Exists(ctx, final); err != nil || there || w.not {
		return err
	}
	caller := ctx
	defer func() { w.not = err != nil && caller.Err() == nil }()
	if _, err := exec.LookPath("go"); err != nil && !strings.Contains(c.options.Machine.Path, "/go/bin") {
		return nil
	}
	tmp := sandbox.SharedCache(warming)
	if err := errors.Join(volumes.Discard(ctx, tmp), volumes.Make(ctx, tmp)); err != nil { // remains of an earlier try that a crash interrupted
		return err
	}
	ctx, cancel := awake.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	limits := c.Limits()
	limits.Counted = []sandbox.Volume{tmp}
	b, err := c.Open(ctx, sandbox.BoxSpec{ID: "warm-" + contract.Nonce(), Kind: contract.BoxScratch, Limits: limits,
		Mounts: []sandbox.Mount{{Source: tmp, Target: HomeInside, Mode: sandbox.ReadWrite}}})
	if err != nil {
		return err
	}
	_, said, exit, err := Client(b).Output(ctx, 4096, "sh", "-c", warmBuild)
	if err := errors.Join(err, b.Kill()); err != nil {
		return err
	}
	if exit.Code != 0 {
		return fault.New("boxes.warm", fault.Unavailable, "", errors.New("go test: "+contract.Clip(string(said), 500)))
	}
	return volumes.Keep(ctx, tmp, final)
}

// warming is the name of a HOME until it is complete.
const warming = ".warm"
