package verbs

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// gitAccess is what stock git needs.
type gitAccess struct {
	URL        string     `json:"url"`
	Repository string     `json:"repository"`
	Token      view.Token `json:"token"`
}

// Git is choir git.
func Git() cli.Verb {
	return cli.Verb{
		Use: "git", Short: "Have stock git clone, fetch and push",
		Long:  "Every repository in the computer has an address over HTTP. Git asks for a name, which may be any, and a password, which is a token.",
		Verbs: []cli.Verb{gitURL()},
	}
}

func gitURL() cli.Verb {
	in := rpc.GitTokenRequest{}
	return cli.Verb{
		Use: "url [PATH]", Short: "Print the address of a repository for git, and make a token for it", Args: cli.Between(0, 1), JSON: gitAccess{},
		Long: "PATH is the folder that it is in, such as workspace/app; without one the address is that of the history of the computer's own files:\n" +
			"a push there becomes a checkpoint. The token is good for this repository and nothing else; it is shown once.",
		Examples: []string{"choir git url workspace/app --write", "choir git url"},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&in.Body.Write, "write", false, "the token may push")
			f.IntVar(&in.Body.Days, "days", 30, "how many days the token is good for, at most 366")
			f.StringVar(&in.Body.Name, "name", "git", "`NAME` of the token in lists")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if in.Body.Days < 1 || in.Body.Days > 366 {
				return cli.Usage(fmt.Errorf("--days is %d; it must be between 1 and 366", in.Body.Days))
			}
			if len(args) == 1 {
				in.Body.Repository = strings.TrimSuffix(args[0], "/")
			}
			got, err := client.Call(ctx, c, rpc.GitToken, in)
			if err != nil {
				return err
			}
			at, err := gitBase(c.Base())
			if err != nil {
				return err
			}
			a := gitAccess{URL: at + got.Path, Repository: got.Repository, Token: got.Token}
			return t.Show(a, func(w io.Writer) {
				terminal.Row(w, "url", a.URL)
				terminal.Row(w, "password", a.Token.Secret)
				terminal.Row(w, "token", a.Token.ID, tokenFor(a.Token))
			})
		},
	}
}

// gitBase is an origin that git can resolve: not every resolver knows names below
// localhost.
func gitBase(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(strings.ToLower(u.Hostname()), ".localhost") {
		port := u.Port()
		if port == "" {
			port = "80"
		}
		u.Host = net.JoinHostPort("127.0.0.1", port)
	}
	return u.String(), nil
}
