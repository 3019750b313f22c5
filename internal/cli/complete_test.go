package cli_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/client"
)

// completes returns what a shell is offered for a verb with one argument and one flag, both of the
// kind that asks lists.
func completes(t *testing.T, asks func() ([]cli.Name, error), line ...string) []string {
	t.Helper()
	t.Setenv("CHOIR_URL", "http://127.0.0.1:1")
	t.Setenv("CHOIR_TOKEN", "choir_x")
	kind := cli.Kind{Asks: func(context.Context, *client.Client, []string, string) ([]cli.Name, error) { return asks() }}
	p := cli.Program{
		Topics: func() []cli.Topic {
			return []cli.Topic{{Name: "All", Verbs: []cli.Verb{{
				Use: "look THING", Short: "Look", Args: cli.Exactly(1), Raw: "it",
				Asks: func(context.Context, *cli.Call, *client.Client, []string) error { return nil },
			}}}}
		},
		Kinds: func() map[string]cli.Kind { return map[string]cli.Kind{"THING": kind, "COMPUTER": kind} },
	}
	args := append([]string{"__complete"}, line...)
	root := p.Root(args...)
	root.SetArgs(args)
	var out, said bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&said)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1] // the last line tells the shell how to continue
}

// TestNoNameIsACommand: a shell inserts what is offered into the person's command line, and a box
// chooses the names of files. A name that a shell would not read as exactly one word is not
// offered.
func TestNoNameIsACommand(t *testing.T) {
	there := []string{
		"workspace/$(touch x)", "workspace/`x`", "workspace/a;b", "workspace/a b", "workspace/a\nb", "workspace/a\tb", "workspace/\x1b]0;owned\x07",
		"workspace/!x", "workspace/*", "workspace/{a,b}", "workspace/a|b", "workspace/a&b", "workspace/a>b", "workspace/'a", "workspace/\"a", "workspace/\\a",
		"workspace/#a", "workspace/~a", "workspace/a=b", "workspace/\u202ea", "workspace/\xff", "--recursive", "-r",
	}
	var names []cli.Name
	for _, n := range there {
		names = append(names, cli.Name{Word: n, About: "a file"})
	}
	good := []string{"workspace/notes.md", "workspace/Ärger-1_2+x@y,z%20", "workspace/folder/"}
	for _, n := range good {
		names = append(names, cli.Name{Word: n, About: "a\tfile\x1b[2J\nof the computer"})
	}
	for _, line := range [][]string{{"look", ""}, {"look", "--computer", ""}} {
		got := completes(t, func() ([]cli.Name, error) { return names, nil }, line...)
		for i, offer := range got {
			word, about, _ := strings.Cut(offer, "\t")
			if len(got) != len(good) || i < len(good) && (word != good[i] || about != "a file [2J of the computer") {
				t.Errorf("%q: offered is %q, %q", line, word, about)
			}
		}
		if len(got) == 0 {
			t.Errorf("%q: nothing is offered", line)
		}
	}
}

// TestACompletionIsBoundedAndSilent shows that a completion offers a bounded number of names that
// continue what was typed. If the server does not answer, it offers none and prints nothing.
func TestACompletionIsBoundedAndSilent(t *testing.T) {
	many := make([]cli.Name, 5000)
	for i := range many {
		many[i].Word = "other"
		if i%2 == 0 {
			many[i].Word = "thing"
		}
	}
	if got := completes(t, func() ([]cli.Name, error) { return many, nil }, "look", "th"); len(got) != 100 || got[0] != "thing" {
		t.Errorf("%d are offered: %q", len(got), got[:min(3, len(got))])
	}
	if got := completes(t, func() ([]cli.Name, error) { return many, errors.New("nobody answers") }, "look", ""); len(got) > 0 {
		t.Errorf("%d are offered of what could not be listed", len(got))
	}
}
