//go:build crashpoints

package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Env names the directory that says which point is armed; without it none is.
const Env = "CRASHPOINTS"

// inBox is the path of that directory in a box.
const inBox = "/crashpoints"

// dir and role are determined at the start: inside a box the role is "guest KIND", and the
// names of its points begin with the kind.
var dir, role = place()

func place() (dir, role string) {
	if len(os.Args) == 3 && os.Args[1] == "guest" {
		return inBox, os.Args[2] + "."
	}
	return os.Getenv(Env), ""
}

// At ends the process if the point is armed. The file "arm" contains a point's name, the
// number of the pass that is meant, counted over all processes, and how often the point kills
// from then on: once, if it doesn't say. The file "hit", or "hit2" and so on, is made
// first, so that a point kills only so often and the test knows that it did. The size of the
// file "passed.NAME" is the number of passes.
func At(point string) {
	if dir == "" {
		return
	}
	point = role + point
	passed := filepath.Join(dir, "passed."+point)
	f, err := os.OpenFile(passed, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return // the test is over
		}
		panic(err)
	}
	_, err = f.Write([]byte{'.'})
	if err = errors.Join(err, f.Close()); err != nil {
		panic(err)
	}
	armed, err := os.ReadFile(filepath.Join(dir, "arm"))
	if err != nil {
		return
	}
	name, at, _ := strings.Cut(strings.TrimSpace(string(armed)), " ")
	if name != point {
		return
	}
	n, times := int64(0), 1
	if _, err := fmt.Sscan(at+" 1", &n, &times); err != nil {
		panic(fmt.Sprintf("crash: the armed pass %q is no number", at))
	}
	if info, err := os.Stat(passed); err != nil || info.Size() < n {
		return
	}
	hit, err := claim(times)
	if err != nil {
		return // other processes were first
	}
	_, err = fmt.Fprintln(hit, point)
	if err = errors.Join(err, hit.Close()); err != nil {
		panic(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	// The kernel ignores a SIGKILL that process 1 of a namespace sends itself.
	for {
		syscall.Exit(137)
	}
}

// claim makes the first file of so many that is not there yet.
func claim(times int) (hit *os.File, err error) {
	for n := 1; n <= times; n++ {
		name := "hit"
		if n > 1 {
			name += strconv.Itoa(n)
		}
		if hit, err = os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
			return hit, nil
		}
	}
	return nil, err
}

// BoxArgs are arguments of bubblewrap that make armed points visible in boxes.
func BoxArgs() []string {
	if dir == "" {
		return nil
	}
	return []string{"--bind", dir, inBox}
}
