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

// Name is something that there is, and in a few words what.
type Name struct{ Word, About string }

// Kind is what a word such as RUN stands for in a verb's Use, or as a flag's value
// in its help, and how a shell completes it. One with nothing set is free: nobody
// knows what it will be.
type Kind struct {
	// Asks lists what there is, of the arguments before it and the beginning of its own.
	Asks func(ctx context.Context, c *client.Client, before []string, typed string) ([]Name, error)
	// Wakes says that asking wakes a sleeping computer, of which nothing is asked then.
	Wakes bool
	// Words are all that it can be, where no one need be asked.
	Words func() []Name
	// Local is a file of the machine that choir is called on, Folder a folder of it.
	Local, Folder bool
}

// What a completion takes at most: the person waits at a prompt.
const (
	completesIn  = time.Second
	completeMost = 100
	maxAbout     = 60
)

// Words are the kinds of a verb's arguments, in their order; more says that there
// may be any number of the last.
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

// completes has a shell complete what the verb's arguments and flags name.
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
			// It fails for a flag that there is not, or for one a second time.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, before []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return t.offer(cmd.Context(), kinds, kind, before, typed)
			})
		}
	})
}

// offer is what a shell offers for a word; where nobody answers in time, nothing.
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
				how |= cobra.ShellCompDirectiveNoSpace // what is in it comes next
			}
			out = append(out, cobra.CompletionWithDesc(n.Word, terminal.OneLine(n.About, maxAbout)))
		}
	}
	return out, how
}

// names lists what there is of a kind. An error has no place at a prompt: there is
// nothing to offer then.
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

// typeable says whether a name is a word in every shell as it stands. A box gives
// files any name, and what a shell writes into a line for somebody is run with it.
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
