package computer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"choir.dev/choiros/internal/fault"
)

// maxSourceFile bounds the files that are looked at here.
const maxSourceFile = 1 << 20

// brokenSource says what is wrong with the files of the shell that no page of it
// could tell of: what the dev server starts from, and what its page is made of.
// "" when nothing is, or they can't be read now.
func (c *Computer) brokenSource(ctx context.Context) string {
	if b, err := c.readFile(ctx, "choiros/package.json", maxSourceFile); fault.Is(err, fault.NotFound) {
		return "package.json is missing"
	} else if err == nil {
		var any map[string]any
		var syntax *json.SyntaxError
		if err := json.Unmarshal(b, &any); errors.As(err, &syntax) {
			at := b[:min(int64(len(b)), syntax.Offset)]
			return fmt.Sprintf("package.json, line %d: %s", 1+bytes.Count(at, []byte("\n")), syntax)
		} else if err != nil {
			return "package.json: " + clip(err.Error(), 200)
		}
	}
	b, err := c.readFile(ctx, "choiros/index.html", maxSourceFile)
	switch {
	case fault.Is(err, fault.NotFound):
		return "index.html is missing"
	case err != nil:
		return ""
	case !bytes.Contains(b, []byte(`id="root"`)):
		return `index.html has no element with id="root", which the desktop is put into`
	case !bytes.Contains(b, []byte("/src/main.tsx")):
		return "index.html does not load /src/main.tsx"
	}
	if _, err := c.workspace.Stat(ctx, "choiros/src/main.tsx"); fault.Is(err, fault.NotFound) {
		return "src/main.tsx is missing"
	}
	return ""
}

var (
	escapes    = regexp.MustCompile("\x1b\\[[0-9;]*m")
	sourceLine = regexp.MustCompile(`(?:/computer/)?(?:choiros/)?([\w@./-]+\.(?:tsx?|m?jsx?|json|html|css)):(\d+)`)
	errorLine  = regexp.MustCompile(`(?i)^\W*(?:\[[\w-]+\]\s*)?((?:\w*error\b[:\s]+)+)(.+)$`)
)

// sourceFault finds in what a dev server wrote which file and line it stumbled
// over, and what it said of it. It is the word of untrusted code, and plain text.
func sourceFault(out string) string {
	out = escapes.ReplaceAllString(out, "")
	at, what := "", ""
	for _, line := range strings.Split(out, "\n") {
		line = strings.TrimSpace(line)
		if m := sourceLine.FindStringSubmatch(line); m != nil && at == "" && !strings.Contains(line, "node_modules") {
			at = fmt.Sprintf("%s, line %s", m[1], m[2])
		}
		if m := errorLine.FindStringSubmatch(line); m != nil && what == "" && !strings.HasSuffix(line, ":") {
			what = m[2]
		}
	}
	switch {
	case what == "":
		return clip(strings.TrimSpace(out), 300)
	case at == "":
		return clip(what, 300)
	}
	return clip(at+": "+what, 400)
}

var (
	configLine = regexp.MustCompile(`failed to load config from \S*?([\w.-]+)\s*$`)
	logLine    = regexp.MustCompile(`^.*?\[vite\]\s*`)
)

// restartFault says why a dev server that goes on with its old configuration
// could not take the new one. It writes no line then.
func restartFault(out string) string {
	file, what := "vite.config.ts", ""
	for _, line := range strings.Split(escapes.ReplaceAllString(out, ""), "\n")[1:] {
		if m := configLine.FindStringSubmatch(line); m != nil {
			file = m[1]
		} else if strings.Contains(line, "server restart failed") {
			break
		} else if line = strings.TrimSpace(logLine.ReplaceAllString(line, "")); line != "" && what == "" {
			what = line
		}
	}
	return clip(file+": "+what, 400)
}
