package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// changed is what a verb prints that gave a member or an account something else.
type changed struct {
	ID     string        `json:"id"`
	Role   grant.Role    `json:"role,omitempty"`
	Powers []grant.Power `json:"powers,omitempty"`
}

func membersVerb() verb {
	return verb{
		use: "members", short: "List who is in a computer, and as what", args: exactly(0), json: []view.Member{},
		long: "A viewer sees everything and changes nothing, an editor prompts, runs commands and changes files, an owner lets others in and allows\n" +
			"what reaches beyond the computer. Somebody is invited with members invite; with what that prints they join.",
		examples: []string{"choir members"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			members, err := client.Call(ctx, c, rpc.MemberList, rpc.Of{})
			if err != nil {
				return err
			}
			return t.show(list(members.Items), func(w io.Writer) {
				for _, m := range members.Items {
					row(w, m.ID, m.Role, oneLine(m.Name, 60), ago(m.Since))
				}
			})
		},
		verbs: []verb{membersInvite(), membersInvitations(), membersRevoke(), membersSet(), membersRemove(), membersLeave()},
	}
}

func membersInvite() verb {
	role := ""
	return verb{
		use: "invite", short: "Make an invitation, which lets one account in", args: exactly(0), json: view.Invitation{},
		examples: []string{"choir members invite --role viewer"},
		flags:    func(f *pflag.FlagSet) { f.StringVar(&role, "role", string(grant.Editor), "viewer, editor or owner") },
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
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
			return t.show(i, func(w io.Writer) {
				row(w, "invitation", i.ID)
				row(w, "role", i.Role)
				row(w, "expires", i.Expires.Local().Format("2006-01-02 15:04"))
				row(w, "join with", "choir join "+i.Token)
			})
		},
	}
}

func membersInvitations() verb {
	return verb{
		use: "invitations", short: "List the invitations that wait", args: exactly(0), json: []view.Invitation{},
		examples: []string{"choir members invitations"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			waiting, err := client.Call(ctx, c, rpc.InvitationList, rpc.Of{})
			if err != nil {
				return err
			}
			return t.show(list(waiting.Items), func(w io.Writer) {
				for _, i := range waiting.Items {
					row(w, i.ID, i.Role, i.By, i.Expires.Local().Format("2006-01-02 15:04"))
				}
			})
		},
	}
}

func membersRevoke() verb {
	return verb{
		use: "revoke INVITATION", short: "Take an invitation back", args: exactly(1), json: removed{},
		examples: []string{"choir members revoke i-01a2"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			if _, err := client.Call(ctx, c, rpc.InvitationRevoke, rpc.OnInvitation{Invitation: args[0]}); err != nil {
				return err
			}
			return t.show(removed{args[0], true}, func(w io.Writer) { row(w, "taken back", args[0]) })
		},
	}
}

func membersSet() verb {
	return verb{
		use: "set ACCOUNT ROLE", short: "Give a member another role", args: exactly(2), json: changed{},
		long:     "What the member has open in the computer ends, and comes back as what the new role allows.",
		examples: []string{"choir members set u-01a2 viewer"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			role, err := asRole(args[1])
			if err != nil {
				return err
			}
			in := rpc.ChangeMemberRequest{OnMember: rpc.OnMember{Account: args[0]}}
			in.Body.Role = role
			if _, err := client.Call(ctx, c, rpc.MemberChange, in); err != nil {
				return err
			}
			return t.show(changed{ID: args[0], Role: role}, func(w io.Writer) { row(w, args[0], role) })
		},
	}
}

func membersRemove() verb {
	return verb{
		use: "rm ACCOUNT", short: "Take a member out of a computer", args: exactly(1), json: removed{},
		long:     "What they have open in the computer ends at once.",
		examples: []string{"choir members rm u-01a2"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			if _, err := client.Call(ctx, c, rpc.MemberRemove, rpc.OnMember{Account: args[0]}); err != nil {
				return err
			}
			return t.show(removed{args[0], true}, func(w io.Writer) { row(w, "removed", args[0]) })
		},
	}
}

func membersLeave() verb {
	return verb{
		use: "leave", short: "Leave a computer", args: exactly(0), json: removed{},
		examples: []string{"choir members leave --computer aaaaaaaaaaaaaaaa"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			a, err := c.Account(ctx)
			if err != nil {
				return err
			}
			if _, err := client.Call(ctx, c, rpc.MemberLeave, rpc.Of{}); err != nil {
				return err
			}
			return t.show(removed{a.ID, true}, func(w io.Writer) { row(w, "left") })
		},
	}
}

func joinVerb() verb {
	return verb{
		use: "join TOKEN", short: "Become a member of a computer by an invitation", args: exactly(1), json: view.Membership{},
		examples: []string{"choir join 4Zs3TqPb"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			in := rpc.JoinRequest{}
			in.Body.Token = args[0]
			m, err := client.Call(ctx, c, rpc.InvitationAccept, in)
			if err != nil {
				return err
			}
			return t.show(m, func(w io.Writer) { row(w, m.Computer, m.Role) })
		},
	}
}

func accountsVerb() verb {
	return verb{
		use: "accounts", short: "List who may sign in to this machine", args: exactly(0), json: []view.Account{},
		long: "What is the machine's takes powers: " + powerWords() + ". Nobody becomes a member of a computer by one.\n" +
			"The machine's owner has them all.",
		examples: []string{"choir accounts"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			accounts, err := client.Call(ctx, c, rpc.AccountList, rpc.Nothing{})
			if err != nil {
				return err
			}
			return t.show(list(accounts.Items), func(w io.Writer) {
				for _, a := range accounts.Items {
					state := "invited"
					if a.Claimed {
						state = "signed in"
					}
					row(w, a.ID, oneLine(a.Name, 60), state, words(a.Powers))
				}
			})
		},
		verbs: []verb{accountsInvite(), accountsLink(), accountsSet(), accountsRemove()},
	}
}

func accountsInvite() verb {
	var powers []string
	return verb{
		use: "invite NAME", short: "Make an account and the link that signs in to it, once", args: exactly(1), json: view.Invited{},
		examples: []string{"choir accounts invite Ada", "choir accounts invite Ada --power computers"},
		flags: func(f *pflag.FlagSet) {
			f.StringArrayVar(&powers, "power", nil, "a power of yours that it gets, too; may be given often")
		},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
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
			return t.show(made, func(w io.Writer) {
				row(w, "account", made.Account.ID)
				row(w, "sign in with", made.URL)
				row(w, "until", made.Expires.Local().Format("2006-01-02 15:04"))
			})
		},
	}
}

func accountsLink() verb {
	return verb{
		use: "link ACCOUNT", short: "Make another sign-in link for an account; for the machine's owner", args: exactly(1), json: view.Link{},
		examples: []string{"choir accounts link u-01a2"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			l, err := client.Call(ctx, c, rpc.AccountLink, rpc.LinkRequest{Account: args[0]})
			if err != nil {
				return err
			}
			return t.show(l, func(w io.Writer) { row(w, l.URL) })
		},
	}
}

func accountsSet() verb {
	return verb{
		use: "set ACCOUNT [POWER…]", short: "Say which powers an account has, and no others", args: between(1, 1+len(grant.Powers())), json: changed{},
		examples: []string{"choir accounts set u-01a2 secrets models", "choir accounts set u-01a2"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			in := rpc.ChangeAccountRequest{OnAccount: rpc.OnAccount{Account: args[0]}}
			var err error
			if in.Body.Powers, err = asPowers(args[1:]); err != nil {
				return err
			}
			if _, err := client.Call(ctx, c, rpc.AccountChange, in); err != nil {
				return err
			}
			return t.show(changed{ID: args[0], Powers: in.Body.Powers}, func(w io.Writer) { row(w, args[0], words(in.Body.Powers)) })
		},
	}
}

func accountsRemove() verb {
	return verb{
		use: "rm ACCOUNT", short: "Remove an account with its sessions, tokens and memberships", args: exactly(1), json: removed{},
		long:     "A computer whose only owner it is needs another one first. What it made in others stays there.",
		examples: []string{"choir accounts rm u-01a2"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			if _, err := client.Call(ctx, c, rpc.AccountRemove, rpc.OnAccount{Account: args[0]}); err != nil {
				return err
			}
			return t.show(removed{args[0], true}, func(w io.Writer) { row(w, "removed", args[0]) })
		},
	}
}

func tokensVerb() verb {
	return verb{
		use: "tokens", short: "List your API tokens", args: exactly(0), json: []view.Token{},
		examples: []string{"choir tokens"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			tokens, err := client.Call(ctx, c, rpc.TokenList, rpc.Nothing{})
			if err != nil {
				return err
			}
			return t.show(list(tokens.Items), func(w io.Writer) {
				for _, k := range tokens.Items {
					row(w, k.ID, oneLine(k.Name, 60), ago(k.Created))
				}
			})
		},
		verbs: []verb{{
			use: "create NAME", short: "Make an API token, which may what you may; its secret is shown once", args: exactly(1), json: view.Token{},
			examples: []string{"choir tokens create ci"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				in := rpc.NewTokenRequest{}
				in.Body.Name = args[0]
				k, err := client.Call(ctx, c, rpc.TokenCreate, in)
				if err != nil {
					return err
				}
				return t.show(k, func(w io.Writer) {
					row(w, "token", k.ID)
					row(w, "secret", k.Secret)
				})
			},
		}, {
			use: "revoke TOKEN", short: "Make an API token invalid: what is open by it ends at once", args: exactly(1), json: removed{},
			examples: []string{"choir tokens revoke t-01a2"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				if _, err := client.Call(ctx, c, rpc.TokenRevoke, rpc.OnToken{Token: args[0]}); err != nil {
					return err
				}
				return t.show(removed{args[0], true}, func(w io.Writer) { row(w, "revoked", args[0]) })
			},
		}},
	}
}

func asRole(s string) (grant.Role, error) {
	if r := grant.Role(s); r.Known() {
		return r, nil
	}
	return "", usageError{fmt.Errorf("%q is no role; there are viewer, editor and owner", s)}
}

func asPowers(in []string) ([]grant.Power, error) {
	out := []grant.Power{}
	for _, s := range in {
		if !grant.Power(s).Known() {
			return nil, usageError{fmt.Errorf("%q is no power; there are %s", s, powerWords())}
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
