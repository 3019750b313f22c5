package cli

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/view"
)

// Name is an existing thing, with a short description.
type Name struct{ Word, About string }

// Kind is what a word such as RUN stands for in a verb's Use, or as a flag's value in its
// help, and how a shell completes it. A Kind with nothing set is free text.
type Kind struct {
	// Asks lists existing names, given the arguments before and what has been typed.
	Asks func(ctx context.Context, c *client.Client, before []string, typed string) ([]Name, error)
	// Wakes says that asking would wake a sleeping computer; such a computer is not asked.
	Wakes bool
	// Words are all possible values, where no control plane has to be asked.
	Words func() []Name
	// Local is a file of the machine that choir is called on, Folder a folder of it.
	Local, Folder bool
}

// Bounds of a completion: the person waits at a prompt.
const (
	completesIn  = time.Second
	completeMost = 100
	maxAbout     = 60
)

// Words are the kinds of a verb's arguments, in order; more says that there may be any
// number of the last.
func (v Verb) Words() (words []string, more bool) {
	for _, w := range strings.Fields(v.Use)[1:] {
		if strings.HasPrefix(w, "-") || strings.HasPrefix(w, "[-") {
			continue // a flag that help shows there
		}
		more = strings.Contains(w, "…")
		words = append(words, strings.Trim(w, "[]…"))
	}
	return words, more
}

// Valued is the kind of a flag's value, "" where it is a number or the like.
func Valued(f *pflag.Flag) string {
	if !strings.HasPrefix(f.Value.Type(), "string") {
		return ""
	}
	kind, _ := pflag.UnquoteUsage(f)
	return kind
}

// completes registers completions for the verb's arguments and flags.
func (v Verb) completes(cmd *cobra.Command, t *Call, kinds map[string]Kind) {
	words, more := v.Words()
	cmd.ValidArgsFunction = func(cmd *cobra.Command, before []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		at := len(before)
		if more {
			at = min(at, len(words)-1)
		}
		if at >= len(words) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return t.offer(cmd.Context(), kinds, words[at], before, typed)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if kind := Valued(f); kind != "" {
			// It fails for a flag that does not exist or is registered already.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, before []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return t.offer(cmd.Context(), kinds, kind, before, typed)
			})
		}
	})
}

// offer is what a shell offers for a word; nothing if nobody answers in time.
func (t *Call) offer(ctx context.Context, kinds map[string]Kind, word string, before []string, typed string) (out []cobra.Completion, how cobra.ShellCompDirective) {
	how = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	ctx, cancel := context.WithTimeout(ctx, completesIn)
	defer cancel()
	for one := range strings.SplitSeq(word, "|") {
		kind := kinds[one]
		switch {
		case kind.Local:
			return nil, cobra.ShellCompDirectiveDefault
		case kind.Folder:
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		for _, n := range t.names(ctx, kind, before, typed) {
			if len(out) == completeMost {
				return out, how
			}
			if !strings.HasPrefix(n.Word, typed) || !typeable(n.Word) {
				continue
			}
			if strings.HasSuffix(n.Word, "/") {
				how |= cobra.ShellCompDirectiveNoSpace // more of the path comes next
			}
			out = append(out, cobra.CompletionWithDesc(n.Word, terminal.OneLine(n.About, maxAbout)))
		}
	}
	return out, how
}

// names lists the existing names of a kind. An error can't be shown at a prompt, so nothing
// is offered then.
func (t *Call) names(ctx context.Context, kind Kind, before []string, typed string) []Name {
	if kind.Words != nil {
		return kind.Words()
	}
	if kind.Asks == nil {
		return nil
	}
	c, err := t.dial()
	if err != nil {
		return nil
	}
	defer c.Close()
	if kind.Wakes {
		info, err := c.Info(ctx)
		if err != nil || info.State != view.StateAwake && info.State != view.StateWorking {
			return nil
		}
	}
	names, err := kind.Asks(ctx, c, before, typed)
	if err != nil {
		return nil
	}
	return names
}

// typeable says whether a name is one word in every shell without quoting. A box gives
// files any name, and what a shell completes is executed with the line.
func typeable(name string) bool {
	if defence.Off(defence.CompletedNames) {
		return true
	}
	return name != "" && len(name) <= 1000 && utf8.ValidString(name) && !strings.HasPrefix(name, "-") && !strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-/+@%,:", r)
	})
}

// completing says whether a command line asks what completes one, and of which verb.
func completing(args []string) (of []string, yes bool) {
	if len(args) == 0 || !slices.Contains([]string{cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, args[0]) {
		return args, false
	}
	if len(args) == 2 {
		return nil, true // the verb itself is being typed
	}
	return args[1:], true
}
