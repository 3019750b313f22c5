package verbs

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// changed is what a verb prints that changed a member or an account.
type changed struct {
	ID     string        `json:"id"`
	Role   grant.Role    `json:"role,omitempty"`
	Powers []grant.Power `json:"powers,omitempty"`
}

// Members is choir members.
func Members() cli.Verb {
	return cli.Verb{
		Use: "members", Short: "List who is in a computer, and as what", Args: cli.Exactly(0), JSON: []view.Member{},
		Long: "A viewer sees everything and changes nothing, an editor prompts, runs commands and changes files, an owner lets others in and allows\n" +
			"what reaches beyond the computer. Somebody is invited with members invite; with what that prints they join.",
		Examples: []string{"choir members"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			members, err := client.Call(ctx, c, rpc.MemberList, rpc.Of{})
			if err != nil {
				return err
			}
			return t.Show(cli.List(members.Items), func(w io.Writer) {
				for _, m := range members.Items {
					terminal.Row(w, m.ID, m.Role, terminal.OneLine(m.Name, 60), terminal.Time(m.Since))
				}
			})
		},
		Verbs: []cli.Verb{membersInvite(), membersInvitations(), membersRevoke(), membersSet(), membersRemove(), membersLeave()},
	}
}

func membersInvite() cli.Verb {
	role := ""
	return cli.Verb{
		Use: "invite", Short: "Make an invitation, which lets one account in", Args: cli.Exactly(0), JSON: view.Invitation{},
		Examples: []string{"choir members invite --role viewer"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&role, "role", string(grant.Editor), "`ROLE`: viewer, editor or owner")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			r, err := asRole(role)
			if err != nil {
				return err
			}
			in := rpc.InviteRequest{}
			in.Body.Role = r
			i, err := client.Call(ctx, c, rpc.InvitationCreate, in)
			if err != nil {
				return err
			}
			return t.Show(i, func(w io.Writer) {
				terminal.Row(w, "invitation", i.ID)
				terminal.Row(w, "role", i.Role)
				terminal.Row(w, "expires", i.Expires.Local().Format("2006-01-02 15:04"))
				terminal.Row(w, "join with", "choir join "+i.Token)
			})
		},
	}
}

func membersInvitations() cli.Verb {
	return cli.Verb{
		Use: "invitations", Short: "List the invitations that wait", Args: cli.Exactly(0), JSON: []view.Invitation{},
		Examples: []string{"choir members invitations"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			waiting, err := client.Call(ctx, c, rpc.InvitationList, rpc.Of{})
			if err != nil {
				return err
			}
			return t.Show(cli.List(waiting.Items), func(w io.Writer) {
				for _, i := range waiting.Items {
					terminal.Row(w, i.ID, i.Role, i.By, i.Expires.Local().Format("2006-01-02 15:04"))
				}
			})
		},
	}
}

func membersRevoke() cli.Verb {
	return cli.Verb{
		Use: "revoke INVITATION", Short: "Take an invitation back", Args: cli.Exactly(1), JSON: removed{},
		Examples: []string{"choir members revoke i-01a2"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if _, err := client.Call(ctx, c, rpc.InvitationRevoke, rpc.OnInvitation{Invitation: args[0]}); err != nil {
				return err
			}
			return t.Show(removed{args[0], true}, func(w io.Writer) { terminal.Row(w, "taken back", args[0]) })
		},
	}
}

func membersSet() cli.Verb {
	return cli.Verb{
		Use: "set MEMBER ROLE", Short: "Give a member another role", Args: cli.Exactly(2), JSON: changed{},
		Long:     "What the member has open in the computer ends, and comes back as what the new role allows.",
		Examples: []string{"choir members set u-01a2 viewer"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			role, err := asRole(args[1])
			if err != nil {
				return err
			}
			in := rpc.ChangeMemberRequest{OnMember: rpc.OnMember{Account: args[0]}}
			in.Body.Role = role
			if _, err := client.Call(ctx, c, rpc.MemberChange, in); err != nil {
				return err
			}
			return t.Show(changed{ID: args[0], Role: role}, func(w io.Writer) { terminal.Row(w, args[0], role) })
		},
	}
}

func membersRemove() cli.Verb {
	return cli.Verb{
		Use: "rm MEMBER", Short: "Take a member out of a computer", Args: cli.Exactly(1), JSON: removed{},
		Long:     "What they have open in the computer ends at once.",
		Examples: []string{"choir members rm u-01a2"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if _, err := client.Call(ctx, c, rpc.MemberRemove, rpc.OnMember{Account: args[0]}); err != nil {
				return err
			}
			return t.Show(removed{args[0], true}, func(w io.Writer) { terminal.Row(w, "removed", args[0]) })
		},
	}
}

func membersLeave() cli.Verb {
	return cli.Verb{
		Use: "leave", Short: "Leave a computer", Args: cli.Exactly(0), JSON: removed{},
		Examples: []string{"choir members leave --computer aaaaaaaaaaaaaaaa"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			a, err := c.Account(ctx)
			if err != nil {
				return err
			}
			if _, err := client.Call(ctx, c, rpc.MemberLeave, rpc.Of{}); err != nil {
				return err
			}
			return t.Show(removed{a.ID, true}, func(w io.Writer) { terminal.Row(w, "left") })
		},
	}
}

// Join is choir join.
func Join() cli.Verb {
	return cli.Verb{
		Use: "join INVITATION-TOKEN", Short: "Become a member of a computer by an invitation", Args: cli.Exactly(1), JSON: view.Membership{},
		Long: "It joins who asks, the account of CHOIR_TOKEN; without one that is this machine's owner. A member with as much is refused,\n" +
			"and the invitation stays. Who has no token yet makes one of a sign-in link with choir sign-in.",
		Examples: []string{"choir join 4Zs3TqPb"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			in := rpc.JoinRequest{}
			in.Body.Token = args[0]
			m, err := client.Call(ctx, c, rpc.InvitationAccept, in)
			if err != nil {
				return err
			}
			return t.Show(m, func(w io.Writer) { terminal.Row(w, m.Computer, m.Role) })
		},
	}
}

// SignIn is choir sign-in.
func SignIn() cli.Verb {
	var name string
	return cli.Verb{
		Use: "sign-in", Short: "Use a sign-in link up without a browser, and print a token of its account", Args: cli.Exactly(0), JSON: client.SignedIn{},
		Long: "The link, which choir accounts invite prints, is read from standard input: other programs see arguments. The token is shown once; with it as CHOIR_TOKEN and the address as\n" +
			"CHOIR_URL every verb is that account's. A link signs in once: a browser takes another one, which choir accounts link makes.",
		Examples: []string{"choir sign-in", "choir sign-in --name laptop <link"},
		Flags:    func(f *pflag.FlagSet) { f.StringVar(&name, "name", "choir sign-in", "`NAME` of the token in lists") },
		Does: func(ctx context.Context, t *cli.Call, _ []string) error {
			link, err := readSecret("sign-in", "Link")
			if err != nil {
				return err
			}
			in, err := client.SignIn(ctx, link, name)
			if err != nil {
				return err
			}
			return t.Show(in, func(w io.Writer) {
				terminal.Row(w, "account", in.Account.ID, terminal.OneLine(in.Account.Name, 60))
				terminal.Row(w, "token", in.Token.ID)
				terminal.Text(w, "export CHOIR_URL="+in.URL+"\nexport CHOIR_TOKEN="+in.Token.Secret+"\n")
			})
		},
	}
}

// Accounts is choir accounts.
func Accounts() cli.Verb {
	return cli.Verb{
		Use: "accounts", Short: "List who may sign in to this machine", Args: cli.Exactly(0), JSON: []view.Account{},
		Long: "What is the machine's takes powers: " + powerWords() + ". Nobody becomes a member of a computer by one.\n" +
			"The machine's owner has them all.",
		Examples: []string{"choir accounts"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			accounts, err := client.Call(ctx, c, rpc.AccountList, rpc.Nothing{})
			if err != nil {
				return err
			}
			return t.Show(cli.List(accounts.Items), func(w io.Writer) {
				for _, a := range accounts.Items {
					state := "invited"
					if a.Claimed {
						state = "signed in"
					}
					terminal.Row(w, a.ID, terminal.OneLine(a.Name, 60), state, words(a.Powers))
				}
			})
		},
		Verbs: []cli.Verb{accountsInvite(), accountsLink(), accountsSet(), accountsRemove()},
	}
}

func accountsInvite() cli.Verb {
	var powers []string
	return cli.Verb{
		Use: "invite NAME", Short: "Make an account and the link that signs in to it, once", Args: cli.Exactly(1), JSON: view.Invited{},
		Examples: []string{"choir accounts invite Ada", "choir accounts invite Ada --power computers"},
		Flags: func(f *pflag.FlagSet) {
			f.StringArrayVar(&powers, "power", nil, "a `POWER` of yours that it gets, too; may be given often")
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			in := rpc.NewAccountRequest{}
			in.Body.Name = args[0]
			var err error
			if in.Body.Powers, err = asPowers(powers); err != nil {
				return err
			}
			made, err := client.Call(ctx, c, rpc.AccountInvite, in)
			if err != nil {
				return err
			}
			return t.Show(made, func(w io.Writer) {
				terminal.Row(w, "account", made.Account.ID)
				terminal.Row(w, "sign in with", made.URL)
				terminal.Row(w, "without a browser", "choir sign-in asks for this link")
				terminal.Row(w, "until", made.Expires.Local().Format("2006-01-02 15:04"))
			})
		},
	}
}

func accountsLink() cli.Verb {
	return cli.Verb{
		Use: "link ACCOUNT", Short: "Make another sign-in link for an account; for the machine's owner", Args: cli.Exactly(1), JSON: view.Link{},
		Examples: []string{"choir accounts link u-01a2"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			l, err := client.Call(ctx, c, rpc.AccountLink, rpc.LinkRequest{Account: args[0]})
			if err != nil {
				return err
			}
			return t.Show(l, func(w io.Writer) { terminal.Row(w, l.URL) })
		},
	}
}

func accountsSet() cli.Verb {
	return cli.Verb{
		Use: "set ACCOUNT [POWER…]", Short: "Say which powers an account has, and no others", Args: cli.Between(1, 1+len(grant.Powers())), JSON: changed{},
		Examples: []string{"choir accounts set u-01a2 secrets models", "choir accounts set u-01a2"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			in := rpc.ChangeAccountRequest{OnAccount: rpc.OnAccount{Account: args[0]}}
			var err error
			if in.Body.Powers, err = asPowers(args[1:]); err != nil {
				return err
			}
			if _, err := client.Call(ctx, c, rpc.AccountChange, in); err != nil {
				return err
			}
			return t.Show(changed{ID: args[0], Powers: in.Body.Powers}, func(w io.Writer) { terminal.Row(w, args[0], words(in.Body.Powers)) })
		},
	}
}

func accountsRemove() cli.Verb {
	return cli.Verb{
		Use: "rm ACCOUNT", Short: "Remove an account with its sessions, tokens and memberships", Args: cli.Exactly(1), JSON: removed{},
		Long:     "A computer whose only owner it is needs another one first. What it made in others stays there.",
		Examples: []string{"choir accounts rm u-01a2"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if _, err := client.Call(ctx, c, rpc.AccountRemove, rpc.OnAccount{Account: args[0]}); err != nil {
				return err
			}
			return t.Show(removed{args[0], true}, func(w io.Writer) { terminal.Row(w, "removed", args[0]) })
		},
	}
}

func asRole(s string) (grant.Role, error) {
	if r := grant.Role(s); r.Known() {
		return r, nil
	}
	return "", cli.Usage(fmt.Errorf("%q is no role; there are viewer, editor and owner", s))
}

func asPowers(in []string) ([]grant.Power, error) {
	out := []grant.Power{}
	for _, s := range in {
		if !grant.Power(s).Known() {
			return nil, cli.Usage(fmt.Errorf("%q is no power; there are %s", s, powerWords()))
		}
		out = append(out, grant.Power(s))
	}
	return out, nil
}

func powerWords() string { return words(grant.Powers()) }

func words(powers []grant.Power) string {
	var out []string
	for _, p := range powers {
		out = append(out, string(p))
	}
	return strings.Join(out, ", ")
}
