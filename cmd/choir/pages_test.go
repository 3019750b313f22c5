package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/test/choirtest"
)

// TestThePageIsWhatIsDeclared compares docs/cli.md with what is generated from the verbs. If
// CHOIR_CLI_WRITE is set, it writes the page instead.
func TestThePageIsWhatIsDeclared(t *testing.T) {
	path := filepath.Join(choirtest.Root(), "docs", "cli.md")
	var want bytes.Buffer
	commandLine().WritePage(&want)
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

// TestEveryVerbIsDeclaredWhole: each verb says what it does, what it prints and how it is
// used, and accepts the examples in its own help.
func TestEveryVerbIsDeclaredWhole(t *testing.T) {
	for _, topic := range topics() {
		cli.Walk(topic.Verbs, "choir", func(name string, v cli.Verb) {
			if v.Short == "" || strings.HasSuffix(v.Short, ".") {
				t.Errorf("%s: it has no short line, or one with a full stop", name)
			}
			if !v.Acts() {
				if len(v.Verbs) == 0 {
					t.Errorf("%s does nothing", name)
				}
				return
			}
			if (v.JSON == nil) == (v.Raw == "") {
				t.Errorf("%s: it says of what it prints either the JSON or that it is none", name)
			}
			if len(v.Examples) == 0 {
				t.Errorf("%s has no example", name)
			}
			for _, e := range v.Examples {
				if err := taken(name, e); err != nil {
					t.Errorf("%s: the example %q: %v", name, e, err)
				}
			}
		})
	}
}

// taken returns an error unless the verb accepts the arguments behind its name in a line of
// shell.
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
	cmd, rest, err := commandLine().Root().Find(words)
	if err != nil {
		return err
	}
	if cmd.CommandPath() != name {
		return cli.Usage(os.ErrInvalid)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.Args(cmd, cmd.Flags().Args())
}

// TestHelpOfNoVerbIsAMistake: help for a word that is no verb is a usage error, and help
// for a verb is none.
func TestHelpOfNoVerbIsAMistake(t *testing.T) {
	for _, x := range []struct {
		code int
		args []string
	}{{2, []string{"help", "nosuch"}}, {2, []string{"help", "files", "nosuch"}}, {0, []string{"help", "files", "get"}}, {0, []string{"help"}}} {
		if code := commandLine().Execute(x.args); code != x.code {
			t.Errorf("%q: code %d; want %d", x.args, code, x.code)
		}
	}
}

// TestEveryNameHasAKind: a shell can complete what a verb's arguments and flags name,
// because each word that stands for an argument has a kind. A new word needs one.
func TestEveryNameHasAKind(t *testing.T) {
	p := commandLine()
	kinds, met := p.Kinds(), map[string]bool{}
	known := func(where, words string) {
		for word := range strings.SplitSeq(words, "|") {
			met[word] = true
			if _, ok := kinds[word]; !ok {
				t.Errorf("%s: nothing says what %q is, or that it is free: see verbs.Kinds", where, word)
			}
		}
	}
	for _, topic := range p.Topics() {
		cli.Walk(topic.Verbs, "choir", func(name string, v cli.Verb) {
			if !v.Acts() {
				return
			}
			words, more := v.Words()
			if least, most := v.Args.Bounds(); least > len(words) || most != len(words) && !more {
				t.Errorf("%s takes %d to %d arguments, and Use names %q", name, least, most, words)
			}
			for _, w := range words {
				known(name, w)
			}
		})
	}
	var flags func(cmd *cobra.Command)
	flags = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if kind := cli.Valued(f); kind != "" {
				known(cmd.CommandPath()+" --"+f.Name, kind)
			}
		})
		for _, inner := range cmd.Commands() {
			flags(inner)
		}
	}
	flags(p.Root())
	for kind := range kinds {
		if !met[kind] {
			t.Errorf("no verb names a %s", kind)
		}
	}
}

// TestAManualThatCanNotBeWrittenFails: a pipe that takes nothing more is no success.
func TestAManualThatCanNotBeWrittenFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	stdout := os.Stdout
	os.Stdout = full
	defer func() { os.Stdout = stdout }()
	if err := commandLine().Manual().Does(t.Context(), &cli.Call{}, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
}

// TestOutputThatCanNotBeWrittenIsToldAsThat: a verb whose output nothing takes fails, help
// too, and speaks of the output, not of the disk that holds the data directory.
func TestOutputThatCanNotBeWrittenIsToldAsThat(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"help"}, {"version"}, {"config", "show", "--help"}, {"config", "show"}} {
		cmd := exec.Command(choirtest.Binary(t), args...)
		cmd.Env = append(os.Environ(), "CHOIR_SERVER_DATA="+t.TempDir())
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &stderr
		err := cmd.Run()
		if said := stderr.String(); err == nil || !strings.Contains(said, "the output can't be written: no space left on device") || strings.Contains(said, "data directory") {
			t.Errorf("%v: %v, %q", args, err, said)
		}
	}
}
