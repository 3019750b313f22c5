package standing

import (
	"cmp"
	"context"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
)

// People are the names of a computer's members, by account.
type People map[string]string

// PeopleOf requests the computer's members. A caller who may not list them sees accounts
// instead of names.
func PeopleOf(ctx context.Context, c *client.Client) (People, error) {
	members, err := client.Call(ctx, c, rpc.MemberList, rpc.Of{})
	if fault.Is(err, fault.Denied) {
		return nil, nil
	}
	in := People{}
	for _, m := range members.Items {
		in[m.ID] = terminal.OneLine(m.Name, 60)
	}
	return in, err
}

// Whose names an actor, and the account that it acted for if that is another's. A person
// who is not a member, or no longer one, is named by their account.
func (in People) Whose(actor contract.ActorName, user string) string {
	name := func(account string) string { return cmp.Or(in[account], account) }
	if actor.Kind() == contract.KindPerson {
		kind, account, _ := strings.Cut(string(actor), ":")
		return kind + ":" + name(account) // a person may have chosen the name "system"
	}
	if user != "" {
		return string(actor) + " for " + name(user)
	}
	return string(actor)
}
