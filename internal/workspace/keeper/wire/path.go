package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// Path is a slash-separated path relative to the tree's root, as bytes. File
// names need not be UTF-8, so in JSON a path that isn't travels as "\u0000" and
// its base64: no file name contains a NUL.
type Path string

// MarshalJSON implements json.Marshaler.
func (p Path) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(p)) {
		return json.Marshal("\x00" + base64.StdEncoding.EncodeToString([]byte(p)))
	}
	return json.Marshal(string(p))
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Path) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if rest, ok := strings.CutPrefix(s, "\x00"); ok {
		raw, err := base64.StdEncoding.DecodeString(rest)
		if err != nil {
			return fmt.Errorf("path is not base64: %w", err)
		}
		s = string(raw)
	}
	*p = Path(s)
	return nil
}

// Shown returns the path as valid UTF-8 for people.
func (p Path) Shown() string { return strings.ToValidUTF8(string(p), "\uFFFD") }

// MaxRequest bounds a JSON request to the keeper, in bytes.
const MaxRequest = 4 << 20

// MaxPath bounds a path that the kernel is given, in bytes.
const MaxPath = 4096

// MaxTreePath limits a path in a tree, in bytes, such that the kernel still accepts it with
// the prefix that it has in a snapshot. It limits the depth as well.
const MaxTreePath = 3500

// CheckPath checks a path that came from outside; root says whether "." is
// allowed. What is under the root's .git belongs to the engine.
func CheckPath(p string, root bool) error {
	switch {
	case p == "." && root:
		return nil
	case p == "" || p == ".":
		return errors.New("is empty")
	case len(p) > MaxTreePath:
		return fmt.Errorf("is %d bytes long; at most %d are allowed", len(p), MaxTreePath)
	case strings.IndexByte(p, 0) >= 0:
		return errors.New("contains a NUL byte")
	case path.IsAbs(p):
		return errors.New("is absolute; paths are relative to the workspace")
	case path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../"):
		return errors.New("is not a clean path inside the workspace")
	case p == ".git" || strings.HasPrefix(p, ".git/"):
		return errors.New("is inside .git, which only the keeper writes")
	}
	return nil
}

// MaxName bounds one name in a path, in bytes: no file system here takes more.
const MaxName = 255

// CheckNames checks that each name in a path can be the name of a file.
func CheckNames(p string) error {
	for name := range strings.SplitSeq(p, "/") {
		if len(name) > MaxName {
			return fmt.Errorf("has a name of %d bytes; at most %d are allowed", len(name), MaxName)
		}
	}
	return nil
}

// ParentDir returns the folder that a path is in, "." for one in the root.
func ParentDir(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return "."
}

// JoinPath returns the path of a name in a folder; the root is "." or "".
func JoinPath(dir, name string) string {
	if dir == "." || dir == "" {
		return name
	}
	return dir + "/" + name
}

// Short returns the beginning of a text that somebody else wrote, for an error.
func Short(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
