package lockfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// Tool is a package manager.
type Tool string

// The package managers whose locks are read.
const (
	NPM   Tool = "npm"
	Go    Tool = "go"
	Cargo Tool = "cargo"
	Pip   Tool = "pip"
)

// Tools lists them.
var Tools = []Tool{NPM, Go, Cargo, Pip}

// names lists the files that lock a tool's packages; the first one that exists counts.
var names = map[Tool][]string{
	NPM: {"npm-shrinkwrap.json", "package-lock.json"}, Go: {"go.sum"}, Cargo: {"Cargo.lock"}, Pip: {"requirements.txt"},
}

// Names lists the files that lock a tool's packages, in the order in which they are looked
// for.
func Names(t Tool) []string { return slices.Clone(names[t]) }

const (
	maxLock     = 16 << 20
	maxManifest = 1 << 20
	maxFiles    = 300
	maxPackages = 50_000
)

// Lock is what an installation of a project's dependencies needs to see.
type Lock struct {
	Tool Tool
	Dir  string // the project's folder, relative to the workspace's root; "." is the root
	Name string // the lock file's name
	// Files holds manifests and lock files by their path from the workspace's root.
	Files map[string][]byte
	// Packages is how many packages the lock file names, Scripts how many of them have an
	// install script.
	Packages, Scripts int
	// Folders are the folders in which npm makes a node_modules.
	Folders []string
	// Own says why an installation from this lock file may be used only by the computer
	// that has it; empty: all computers with the same files may share one.
	Own string

	entries map[string]npmEntry // npm's packages, by their path
}

// Sum returns an id for what the lock file requires and the toolchain that installs it.
func (l Lock) Sum(toolchain string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %q %q\n", l.Tool, l.Dir, toolchain)
	for _, p := range slices.Sorted(maps.Keys(l.Files)) {
		fmt.Fprintf(h, "%q %x\n", p, sha256.Sum256(l.Files[p]))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Reader reads at most max bytes of a file of the workspace; fault.NotFound when there is
// no such file.
type Reader func(path string, max int) ([]byte, error)

// Read reads a project's lock file. Errors: fault.NotFound when there is none,
// fault.Invalid with the reason when nothing can be installed from it.
func Read(t Tool, dir string, read Reader) (Lock, error) {
	l := &Lock{Tool: t, Dir: path.Clean(dir), Files: map[string][]byte{}}
	r := &reading{parsed: l, read: read}
	var err error
	switch t {
	case NPM:
		err = r.npm()
	case Go:
		err = r.golang()
	case Cargo:
		err = r.cargo()
	case Pip:
		err = r.pip()
	default:
		err = invalid("%q is no package manager that is known", t)
	}
	if err == nil && l.Packages > maxPackages {
		err = invalid("%s names %d packages; %d is the most", l.Name, l.Packages, maxPackages)
	}
	return *l, fault.Wrap("lockfile.Read", err)
}

func invalid(format string, args ...any) error {
	return fault.New("", fault.Invalid, "", fmt.Errorf(format, args...))
}

// reading is one lock being read.
type reading struct {
	parsed *Lock
	read   Reader
}

// in turns a path relative to the project into one relative to the workspace. Paths that
// lead out of the workspace are refused.
func (r *reading) in(rel string) (string, error) {
	p := path.Join(r.parsed.Dir, rel)
	if rel == "" || path.IsAbs(rel) || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsAny(rel, "\\\x00") || len(p) > 1000 {
		return "", invalid("%s names the folder %q, which is not in the workspace", r.parsed.Name, clip(rel))
	}
	if slices.Contains(strings.Split(p, "/"), ".git") {
		return "", invalid("%s names the folder %q", r.parsed.Name, clip(rel))
	}
	return p, nil
}

// file reads one of the project's files and keeps it for the installation.
func (r *reading) file(rel string, max int) ([]byte, error) {
	p, err := r.in(rel)
	if err != nil {
		return nil, err
	}
	if b, ok := r.parsed.Files[p]; ok {
		return b, nil
	}
	if len(r.parsed.Files) >= maxFiles {
		return nil, invalid("the project has more than %d manifests", maxFiles)
	}
	b, err := r.read(p, max+1)
	if err != nil {
		return nil, err
	}
	if len(b) > max {
		return nil, invalid("%s is larger than %d bytes", p, max)
	}
	r.parsed.Files[p] = b
	return b, nil
}

// lock reads the lock file itself.
func (r *reading) lock() ([]byte, error) {
	for _, name := range names[r.parsed.Tool] {
		r.parsed.Name = name
		b, err := r.file(name, maxLock)
		if !fault.Is(err, fault.NotFound) {
			return b, err
		}
	}
	return nil, fault.New("", fault.NotFound, "", errors.New("there is no lock file"))
}

func clip(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return contract.Clip(s, 120)
}
