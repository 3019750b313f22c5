// Package docs_test compares these pages with what they describe.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

// pages returns the project's texts by their paths below its root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(choirtest.Root(), pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no page is %s: %v", pattern, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(choirtest.Root(), file)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(b)
		}
	}
	return out
}

var (
	declared = regexp.MustCompile(`(?m)^(?:func|type) ((?:Test|Fuzz|Benchmark)[A-Z]\w*)`)
	named    = regexp.MustCompile(`\b((?:Test|Fuzz|Benchmark)[A-Z]\w*)(\*?)|([\w-]+\.test\.(?:mjs|tsx?))`)
)

// TestEveryTestThatAPageNamesExists: a sentence in the pages that states a guarantee names the test
// that fails without it, so these tests must exist.
func TestEveryTestThatAPageNamesExists(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	err := filepath.WalkDir(choirtest.Root(), func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case strings.Contains(d.Name(), ".test."):
			there[d.Name()] = true
		case strings.HasSuffix(d.Name(), ".go"):
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for _, m := range declared.FindAllSubmatch(b, -1) {
				there[string(m[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for page, text := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			seen++
			name, some := m[1]+m[3], m[2] != ""
			if there[name] {
				continue
			}
			begins := false
			for other := range there {
				begins = begins || some && strings.HasPrefix(other, name)
			}
			if !begins {
				t.Errorf("%s names %s, and there is no such test", page, m[0])
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d tests are named by all pages: they are not found any more", seen)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	signs   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestLinksLeadSomewhere shows that each link leads to a file and, where it names one, a heading.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	for page, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(choirtest.Root(), to)); err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
			}
			if anchor == "" {
				continue
			}
			var headings []string
			for _, h := range heading.FindAllStringSubmatch(texts[to], -1) {
				headings = append(headings, strings.ReplaceAll(signs.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
			}
			if !slices.Contains(headings, anchor) {
				t.Errorf("%s: %s has no heading #%s", page, to, anchor)
			}
		}
	}
}

// TestNoEntryOfTheChangelogIsTorn: git merges the changelog by union, which can leave half of an
// entry, or an entry twice.
func TestNoEntryOfTheChangelogIsTorn(t *testing.T) {
	t.Parallel()
	_, list, found := strings.Cut(pages(t)["CHANGELOG.md"], "\n- ")
	if !found {
		t.Fatal("the changelog has no entry")
	}
	seen := map[string]bool{}
	for entry := range strings.SplitSeq(list, "\n- ") {
		entry, _, _ = strings.Cut(entry, "\n\n#") // the heading of an earlier version
		entry = strings.TrimRight(entry, "\n")
		lines := strings.Split(entry, "\n")
		for _, l := range lines[1:] {
			if !strings.HasPrefix(l, "  ") {
				t.Errorf("this line belongs to no entry: %q", l)
			}
		}
		if !strings.HasSuffix(entry, ".") {
			t.Errorf("an entry has no end: %q", entry)
		}
		for _, l := range lines {
			if l = strings.TrimSpace(l); seen[l] {
				t.Errorf("this stands twice: %q", l)
			}
			seen[strings.TrimSpace(l)] = true
		}
	}
}
