package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// tokenCapabilities says in words, for help, what a token may be made for.
var tokenCapabilities = []struct {
	may  contract.Capability
	says string
}{
	{contract.CanRead, "see files, documents, runs and events"},
	{contract.CanPrompt, "prompt, answer, steer and end runs, which do what any run may"},
	{contract.CanWrite, "change files and documents, push with git"},
	{contract.CanExec, "run commands, a terminal's among them"},
	{contract.CanRestore, "make checkpoints, go back, undo"},
	{contract.CanArrange, "rename a computer, wake it, move windows"},
	{contract.CanManage, "export, rebuild, remove and put back a computer"},
	{contract.CanInvite, "let others in: as much as an owner, in the end"},
	{contract.CanSelf, "list and revoke tokens, end sessions, join and leave computers"},
	{contract.CanSecrets, "the machine's secrets"},
	{contract.CanModels, "test models"},
	{contract.CanMachine, "doctor; with manage, recover"},
	{contract.CanComputers, "make computers; with restore, fork one"},
	{contract.CanAccounts, "invite and remove accounts"},
}

// Tokens is choir tokens.
func Tokens() cli.Verb {
	return cli.Verb{
		Use: "tokens", Short: "List your tokens, of the API and for git", Args: cli.Exactly(0), JSON: []view.Token{},
		Examples: []string{"choir tokens"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			tokens, err := client.Call(ctx, c, rpc.TokenList, rpc.Nothing{})
			if err != nil {
				return err
			}
			return t.Show(cli.List(tokens.Items), func(w io.Writer) {
				for _, k := range tokens.Items {
					terminal.Row(w, k.ID, terminal.OneLine(k.Name, 60), terminal.Time(k.Created), tokenFor(k))
				}
			})
		},
		Verbs: []cli.Verb{tokensCreate(), tokensRevoke()},
	}
}

func tokensCreate() cli.Verb {
	var may []string
	var days int
	long := "Without --may it may what you may. With it, it may what is named and nothing else, and never more than you:\n"
	for _, l := range tokenCapabilities {
		long += fmt.Sprintf("  %-10s %s\n", l.may, l.says)
	}
	return cli.Verb{
		Use: "create NAME", Short: "Make an API token, for what you may or for less; its secret is shown once", Args: cli.Exactly(1), JSON: view.Token{},
		Long:     long + "When a token ends, what is open by it ends, too.",
		Examples: []string{"choir tokens create ci", "choir tokens create watcher --may read --days 30", "choir tokens create bot --may read --may prompt --may write"},
		Flags: func(f *pflag.FlagSet) {
			f.StringArrayVar(&may, "may", nil, "a `CAPABILITY` that it is for, a word of these; may be given often")
			f.IntVar(&days, "days", 0, "how many days it is good for; 0: until it is revoked")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			in := rpc.NewTokenRequest{}
			in.Body.Name, in.Body.Days = args[0], days
			for _, word := range may {
				if !slices.Contains(contract.TokenCapabilities, contract.Capability(word)) {
					return cli.Usage(fmt.Errorf("%q is nothing that a token is made for; there are %s", word, mays(contract.TokenCapabilities)))
				}
				in.Body.May = append(in.Body.May, contract.Capability(word))
			}
			if days < 0 || days > 366 {
				return cli.Usage(errors.New("--days is 366 at most, and not negative"))
			}
			k, err := client.Call(ctx, c, rpc.TokenCreate, in)
			if err != nil {
				return err
			}
			return t.Show(k, func(w io.Writer) {
				terminal.Row(w, "token", k.ID)
				terminal.Row(w, "for", tokenFor(k))
				terminal.Row(w, "secret", k.Secret)
			})
		},
	}
}

func tokensRevoke() cli.Verb {
	return cli.Verb{
		Use: "revoke TOKEN", Short: "Make a token invalid, and those for git that it made: what is open by them ends at once", Args: cli.Exactly(1), JSON: removed{},
		Examples: []string{"choir tokens revoke t-01a2"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if _, err := client.Call(ctx, c, rpc.TokenRevoke, rpc.OnToken{Token: args[0]}); err != nil {
				return err
			}
			return t.Show(removed{args[0], true}, func(w io.Writer) { terminal.Row(w, "revoked", args[0]) })
		},
	}
}

func mays(some []contract.Capability) string {
	var words []string
	for _, c := range some {
		words = append(words, string(c))
	}
	return strings.Join(words, ", ")
}

// tokenFor says what a token may be used for.
func tokenFor(k view.Token) string {
	says := "all that its account may"
	if k.May != nil {
		says = mays(k.May)
	}
	if k.Git != nil {
		may, where := "reads", k.Git.Repository
		if k.Git.Write {
			may = "reads and pushes to"
		}
		if where == "" {
			where = "the history of its files"
		}
		says = fmt.Sprintf("%s %s of %s", may, where, k.Git.Computer)
	}
	if k.Expires != nil {
		says += " until " + k.Expires.Local().Format("2006-01-02")
	}
	return says
}
