package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
)

// maxSourceFile bounds the files that are examined here.
const maxSourceFile = 1 << 20

// BrokenSource says what is wrong with those files of the shell that no page could report:
// what the dev server starts from, and what its page is made of. It is "" when nothing is
// wrong, or they can't be read now.
func (s *Shell) BrokenSource(ctx context.Context) string {
	if b, said := s.sourceFileOf(ctx, "package.json"); said != "" {
		return said
	} else if b != nil {
		if said := manifestFault(b); said != "" {
			return said
		}
	}
	b, said := s.sourceFileOf(ctx, "index.html")
	switch {
	case said != "":
		return said
	case b == nil:
		return ""
	case !bytes.Contains(b, []byte(`id="root"`)):
		return `index.html has no element with id="root", which the desktop is put into`
	case !bytes.Contains(b, []byte("/src/main.tsx")):
		return "index.html does not load /src/main.tsx"
	}
	_, said = s.sourceFileOf(ctx, "src/main.tsx")
	return said
}

// sourceFileOf reads a file of the shell, or says why there is none; neither when that
// can't be known now.
func (s *Shell) sourceFileOf(ctx context.Context, name string) (b []byte, said string) {
	b, err := s.workspace.ReadAll(ctx, "", "choiros/"+name, maxSourceFile)
	if fault.Is(err, fault.NotFound) {
		return nil, name + " is missing"
	}
	if err == nil {
		return append([]byte{}, b...), ""
	}
	info, err := s.workspace.Stat(ctx, "choiros/"+name)
	switch {
	case err != nil || info.Kind == "file" || info.Kind == "symlink":
		return nil, ""
	case info.Kind == "dir":
		return nil, name + " is a folder, where a file has to be"
	}
	return nil, fmt.Sprintf("%s is no file but a %s", name, info.Kind)
}

// manifestFault says what is wrong with a package.json.
func manifestFault(b []byte) string {
	var all any
	var syntax *json.SyntaxError
	if err := json.Unmarshal(b, &all); errors.As(err, &syntax) {
		at := b[:min(int64(len(b)), syntax.Offset)]
		return fmt.Sprintf("package.json, line %d: %s", 1+bytes.Count(at, []byte("\n")), syntax)
	} else if err != nil {
		return "package.json: " + contract.Clip(err.Error(), 200)
	}
	manifest, ok := all.(map[string]any)
	if !ok {
		return fmt.Sprintf("package.json is %s, where an object has to be", jsonKind(all))
	}
	for _, key := range []string{"dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "scripts"} {
		value, there := manifest[key]
		entries, ok := value.(map[string]any)
		if there && !ok {
			return fmt.Sprintf("package.json: %s is %s, where an object of names and texts has to be", key, jsonKind(value))
		}
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			if _, ok := entries[name].(string); !ok {
				return fmt.Sprintf("package.json: %q in %s is %s, where a text has to be", contract.Clip(name, 80), key, jsonKind(entries[name]))
			}
		}
	}
	return ""
}

func jsonKind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case float64:
		return "a number"
	case string:
		return "a text"
	case []any:
		return "a list"
	}
	return "an object"
}

// sourceFile is the metadata of one file of the shell's source.
type sourceFile struct {
	path       string
	size, time int64 // bytes; modification, Unix milliseconds
}

// maxSourceDirs and maxSourceFiles bound how much of the source is examined.
const maxSourceDirs, maxSourceFiles = 100, 5000

// source lists the files that the dev server may run, without those that it only serves;
// nil when they can't be listed.
func (s *Shell) source(ctx context.Context) []sourceFile {
	var out []sourceFile
	dirs := []string{"choiros"}
	for i := 0; i < len(dirs) && i < maxSourceDirs && len(out) < maxSourceFiles; i++ {
		files, _, err := s.workspace.Files(ctx, dirs[i], "", 1000)
		if err != nil && i == 0 {
			return nil
		}
		for _, f := range files { // without those that were removed meanwhile
			switch name := path.Base(string(f.Path)); {
			case f.Kind == "dir" && name != "node_modules" && name != "dist" && name != "test" && !strings.HasPrefix(name, "."):
				dirs = append(dirs, string(f.Path))
			case f.Kind == "file":
				out = append(out, sourceFile{string(f.Path), f.Size, f.Time})
			}
		}
	}
	return out
}

// anotherSource reports whether two listings of the source are known to differ.
func anotherSource(a, b []sourceFile) bool { return a != nil && b != nil && !slices.Equal(a, b) }

// lastChanged is the file that was changed last, as people know it; "" when that is unknown
// or something was changed later than before.
func lastChanged(files []sourceFile, before time.Time) string {
	var last sourceFile
	for _, f := range files {
		if f.time > last.time {
			last = f
		}
	}
	if last.time > before.UnixMilli() {
		return ""
	}
	return strings.TrimPrefix(last.path, "choiros/")
}

// The ways in which a dev server hangs, for hangWords.
const (
	hangsSilent = "The dev server hangs: it runs and gives no answer."
	hangsAnew   = "The dev server hangs as it starts anew, and follows no other change of what it starts from until it has."
)

// hangWords says, for a person, how the dev server hangs, or that it ended without output,
// and which file was changed last before that.
func hangWords(how, file string) string {
	where := "Which file was changed last before that is not known."
	if file != "" {
		where = contract.Clip(file, 200) + " was changed last before that: look there for a loop without an end, or a wait for what never comes."
	}
	return how + " " + where + " Your files are safe. Once the source is mended, or taken back with Time Travel, the live desktop comes by itself."
}

var (
	escapes    = lazy.Regexp("\x1b\\[[0-9;]*m")
	sourceLine = lazy.Regexp(`(?:/computer/)?(?:choiros/)?([\w@./-]+\.(?:tsx?|m?jsx?|json|html|css)):(\d+)`)
	errorLine  = lazy.Regexp(`(?i)^\W*(?:\[[\w-]+\]\s*)?((?:\w*error\b[:\s]+)+)(.+)$`)
)

// sourceFault finds in a dev server's output which file and line it failed on, and its
// message. It is untrusted code's word, and plain text.
func sourceFault(out string) string {
	out = escapes().ReplaceAllString(out, "")
	at, what := "", ""
	for _, line := range strings.Split(out, "\n") {
		line = strings.TrimSpace(line)
		if m := sourceLine().FindStringSubmatch(line); m != nil && at == "" && !strings.Contains(line, "node_modules") {
			at = fmt.Sprintf("%s, line %s", m[1], m[2])
		}
		if m := errorLine().FindStringSubmatch(line); m != nil && what == "" && !strings.HasSuffix(line, ":") {
			what = m[2]
		}
	}
	switch {
	case what == "":
		return contract.Clip(strings.TrimSpace(out), 300)
	case at == "":
		return contract.Clip(what, 300)
	}
	return contract.Clip(at+": "+what, 400)
}

var (
	configLine = lazy.Regexp(`failed to load config from \S*?([\w.-]+)\s*$`)
	logLine    = lazy.Regexp(`^.*?\[vite\]\s*`)
)

// restartFault finds why a dev server that goes on with its old configuration could not use
// the new one. It prints no line number then.
func restartFault(out string) string {
	file, what := "vite.config.ts", ""
	for _, line := range strings.Split(escapes().ReplaceAllString(out, ""), "\n")[1:] {
		if m := configLine().FindStringSubmatch(line); m != nil {
			file = m[1]
		} else if strings.Contains(line, "server restart failed") {
			break
		} else if line = strings.TrimSpace(logLine().ReplaceAllString(line, "")); line != "" && what == "" {
			what = line
		}
	}
	return contract.Clip(file+": "+what, 400)
}
