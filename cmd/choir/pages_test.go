package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

// TestThePageIsWhatIsDeclared: docs/cli.md is made of the verbs. With
// CHOIR_CLI_WRITE set it is written instead.
func TestThePageIsWhatIsDeclared(t *testing.T) {
	path := filepath.Join(choirtest.Root(), "docs", "cli.md")
	var want bytes.Buffer
	writePage(&want)
	if os.Getenv("CHOIR_CLI_WRITE") != "" {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/cli.md is not what the verbs declare: make generate")
	}
}

// TestEveryVerbIsDeclaredWhole: each says what it is, what it prints and how it
// is used, and its examples are taken by the verb they stand at.
func TestEveryVerbIsDeclaredWhole(t *testing.T) {
	for _, topic := range topics() {
		walk(topic.verbs, "choir", func(name string, v verb) {
			if v.short == "" || strings.HasSuffix(v.short, ".") {
				t.Errorf("%s: it has no short line, or one with a full stop", name)
			}
			if !v.acts() {
				if len(v.verbs) == 0 {
					t.Errorf("%s does nothing", name)
				}
				return
			}
			if (v.json == nil) == (v.raw == "") {
				t.Errorf("%s: it says of what it prints either the JSON or that it is none", name)
			}
			if len(v.examples) == 0 {
				t.Errorf("%s has no example", name)
			}
			for _, e := range v.examples {
				if err := taken(name, e); err != nil {
					t.Errorf("%s: the example %q: %v", name, e, err)
				}
			}
		})
	}
}

// taken says whether the verb takes what is behind its name in a line of shell.
func taken(name, line string) error {
	_, line, _ = strings.Cut("; "+line, "choir ")
	for _, end := range []string{" | ", " >", " <"} {
		line, _, _ = strings.Cut(line, end)
	}
	var words []string
	for i, part := range strings.FieldsFunc(line, func(r rune) bool { return r == '"' || r == '\'' }) {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	cmd, rest, err := newRoot().Find(words)
	if err != nil {
		return err
	}
	if cmd.CommandPath() != name {
		return usageError{os.ErrInvalid}
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.Args(cmd, cmd.Flags().Args())
}
