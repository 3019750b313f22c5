package verbs

import (
	"context"
	"path"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// offered is how many entries of a list are requested for completing one.
const offered = 100

// Kinds are the kinds of all words in the verbs' arguments and flags, free text included.
func Kinds() map[string]cli.Kind {
	out := map[string]cli.Kind{
		"RUN":        {Asks: runNames, Wakes: true},
		"QUESTION":   {Asks: questionNames, Wakes: true},
		"APPROVAL":   {Asks: approvalNames, Wakes: true},
		"DOCUMENT":   {Asks: documentNames, Wakes: true},
		"PROPOSAL":   {Asks: proposalNames, Wakes: true},
		"PATH":       {Asks: pathNames, Wakes: true},
		"ENTRY":      {Asks: entryNames, Wakes: true},
		"CHECKPOINT": {Asks: checkpointNames},
		"COMPUTER":   {Asks: each((*client.Client).Computers, computerName)},
		"REMOVED":    {Asks: each((*client.Client).RemovedComputers, computerName)},
		"SECRET":     {Asks: each((*client.Client).Secrets, func(s view.Secret) cli.Name { return cli.Name{Word: s.ID, About: s.Source} })},
		"MODEL":      {Asks: modelNames},
		"MEMBER": {Asks: listed(rpc.MemberList, rpc.Of{}, func(m view.Member) cli.Name {
			return cli.Name{Word: string(m.ID), About: string(m.Role) + " " + m.Name}
		})},
		"INVITATION": {Asks: listed(rpc.InvitationList, rpc.Of{}, func(i view.Invitation) cli.Name {
			return cli.Name{Word: i.ID, About: string(i.Role) + " until " + terminal.Time(i.Expires)}
		})},
		"FACT": {Asks: listed(rpc.MemoryList, rpc.MemoryRequest{Paged: rpc.Paged{Limit: offered}}, func(f view.Fact) cli.Name {
			return cli.Name{Word: f.ID, About: f.Text}
		}), Wakes: true},
		"EFFECT": {Asks: listed(rpc.EffectList, rpc.EffectsRequest{Paged: rpc.Paged{Limit: offered}}, func(e view.Effect) cli.Name {
			return cli.Name{Word: e.ID, About: e.Outcome + " " + e.Target}
		}), Wakes: true},
		"SOURCE": {Asks: listed(rpc.LibraryList, rpc.LibraryRequest{Paged: rpc.Paged{Limit: offered}}, func(s view.Source) cli.Name {
			return cli.Name{Word: s.ID, About: s.Title + " " + s.Address}
		}), Wakes: true},
		"ACCOUNT": {Asks: listed(rpc.AccountList, rpc.Nothing{}, func(a view.Account) cli.Name { return cli.Name{Word: a.ID, About: a.Name} })},
		"SERVER": {Asks: listed(rpc.MCPServerList, rpc.Of{}, func(s view.MCPServer) cli.Name {
			return cli.Name{Word: s.ID, About: strings.Join(s.Command, " ") + s.URL}
		}), Wakes: true},
		"TOOL":    {Asks: toolNames, Wakes: true},
		"TOKEN":   {Asks: listed(rpc.TokenList, rpc.Nothing{}, func(k view.Token) cli.Name { return cli.Name{Word: k.ID, About: k.Name + " " + tokenFor(k)} })},
		"VERSION": {Words: fixed(view.AnyVersion, view.NoVersion)},
		"EFFORT":  {Words: fixed(contract.EffortNone, contract.EffortLow, contract.EffortMedium, contract.EffortHigh)},
		"OUTCOME": {Words: fixed(view.EffectOpen, string(contract.EffectDone), string(contract.EffectFailed), string(contract.EffectUnknown))},
		"ROLE":    {Words: fixed(grant.Viewer, grant.Editor, grant.Owner)},
		"POWER":   {Words: fixed(grant.Powers()...)},
		"CAPABILITY": {Words: func() []cli.Name {
			out := names(contract.TokenCapabilities, func(c contract.Capability) cli.Name { return cli.Name{Word: string(c)} })
			for i := range out {
				out[i].About = tokenCapabilities[i].says
			}
			return out
		}},
		"SHELL": {Words: fixed("bash", "zsh", "fish")},
		"TYPE":  {Words: eventTypes},
		"LOCAL": {Local: true},
		"FILE":  {Local: true},
		"DIR":   {Folder: true},
	}
	// Free text: the caller makes it up, or only the caller knows it.
	for _, free := range []string{"TEXT", "WORDS", "ADDRESS", "NAME", "URL", "CMD", "TASK", "HUNK", "COMMENT", "THING", "PATTERN", "HOST:PORT", "VARIABLE=SECRET", "ADDR:PORT", "INVITATION-TOKEN"} {
		out[free] = cli.Kind{}
	}
	return out
}

// nameLister requests the names of a kind.
type nameLister = func(ctx context.Context, c *client.Client, before []string, typed string) ([]cli.Name, error)

// each makes names of what a method of the client lists.
func each[T any](list func(*client.Client, context.Context) ([]T, error), name func(T) cli.Name) nameLister {
	return func(ctx context.Context, c *client.Client, _ []string, _ string) ([]cli.Name, error) {
		items, err := list(c, ctx)
		return names(items, name), err
	}
}

// listed makes names of what a method declared in rpc lists.
func listed[In rpc.Asked, T any](m *rpc.Method[In, rpc.List[T]], in In, name func(T) cli.Name) nameLister {
	return func(ctx context.Context, c *client.Client, _ []string, _ string) ([]cli.Name, error) {
		l, err := client.Call(ctx, c, m, in)
		return names(l.Items, name), err
	}
}

func names[T any](items []T, name func(T) cli.Name) []cli.Name {
	var out []cli.Name
	for _, it := range items {
		out = append(out, name(it))
	}
	return out
}

func fixed[T ~string](all ...T) func() []cli.Name {
	return func() []cli.Name { return names(all, func(s T) cli.Name { return cli.Name{Word: string(s)} }) }
}

func eventTypes() []cli.Name {
	return names(contract.Types(), func(t contract.TypeInfo) cli.Name { return cli.Name{Word: t.Type} })
}

// toolNames are those of the server in the argument before, of which the log knows.
func toolNames(ctx context.Context, c *client.Client, before []string, _ string) ([]cli.Name, error) {
	all, err := client.Call(ctx, c, rpc.MCPServerList, rpc.Of{})
	for _, s := range all.Items {
		if len(before) > 0 && s.ID == before[0] {
			return names(s.Tools, func(t view.MCPTool) cli.Name { return cli.Name{Word: t.ID, About: string(t.State)} }), err
		}
	}
	return nil, err
}

func computerName(c view.Computer) cli.Name {
	return cli.Name{Word: string(c.ID), About: string(c.State) + " " + c.Name}
}

func runNames(ctx context.Context, c *client.Client, _ []string, _ string) ([]cli.Name, error) {
	runs, _, err := c.Runs(ctx, 0, offered)
	return names(runs, func(r view.Run) cli.Name { return cli.Name{Word: r.ID, About: string(r.Status) + " " + r.Prompt} }), err
}

// documentNames are those of the newest runs, whose documents they are.
func documentNames(ctx context.Context, c *client.Client, _ []string, _ string) ([]cli.Name, error) {
	runs, _, err := c.Runs(ctx, 0, offered)
	runs = slices.DeleteFunc(runs, func(r view.Run) bool { return r.Document == "" })
	return names(runs, func(r view.Run) cli.Name { return cli.Name{Word: r.Document, About: r.Prompt} }), err
}

// questionNames are the open questions of the run in the argument before.
func questionNames(ctx context.Context, c *client.Client, before []string, _ string) ([]cli.Name, error) {
	if len(before) == 0 {
		return nil, nil
	}
	r, err := c.Run(ctx, before[0])
	return names(r.Questions, func(q contract.Question) cli.Name { return cli.Name{Word: q.ID, About: q.Text} }), err
}

func approvalNames(ctx context.Context, c *client.Client, _ []string, _ string) ([]cli.Name, error) {
	open, _, err := c.Approvals(ctx, false, 0, offered)
	return names(open, func(a view.Approval) cli.Name { return cli.Name{Word: a.ID, About: a.Act().Target() + " " + a.Prompt} }), err
}

// proposalNames are the open proposals of the document in the argument before.
func proposalNames(ctx context.Context, c *client.Client, before []string, _ string) ([]cli.Name, error) {
	if len(before) == 0 {
		return nil, nil
	}
	open, _, err := c.Proposals(ctx, before[0], false, 0, offered)
	return names(open, func(p view.Proposal) cli.Name {
		return cli.Name{Word: p.ID, About: terminal.Time(p.Time) + " " + p.Author}
	}), err
}

func checkpointNames(ctx context.Context, c *client.Client, _ []string, typed string) ([]cli.Name, error) {
	list, _, err := c.Checkpoints(ctx, 0, offered)
	return names(list, func(k view.Checkpoint) cli.Name {
		word := terminal.Short(k.ID)
		if len(typed) > len(word) {
			word = k.ID
		}
		return cli.Name{Word: word, About: terminal.Time(k.Time) + " " + k.Message}
	}), err
}

func entryNames(ctx context.Context, c *client.Client, _ []string, _ string) ([]cli.Name, error) {
	l, err := client.Call(ctx, c, rpc.TrashList, rpc.TrashRequest{Limit: offered})
	return names(l.Items, func(e view.Trashed) cli.Name { return cli.Name{Word: e.ID, About: e.By + " " + e.Path} }), err
}

// modelNames are the models that can be used now.
func modelNames(ctx context.Context, c *client.Client, _ []string, _ string) (out []cli.Name, err error) {
	models, err := c.Models(ctx)
	for _, m := range models {
		if !m.Available {
			continue
		}
		for _, alias := range m.Aliases {
			out = append(out, cli.Name{Word: alias, About: m.ID})
		}
		out = append(out, cli.Name{Word: m.ID, About: m.Note})
	}
	return out, err
}

// maxSearched is how many pages of a folder's entries are searched.
const maxSearched = 5

// pathNames are the entries of the folder that was typed so far.
func pathNames(ctx context.Context, c *client.Client, _ []string, typed string) (out []cli.Name, err error) {
	folder, _ := path.Split(typed)
	for after, n := "", 0; n < maxSearched; n++ {
		part, err := client.Call(ctx, c, rpc.FilesList, rpc.FilesRequest{Path: strings.Trim(folder, "/"), After: after, Limit: 2000})
		if err != nil {
			return out, err
		}
		for _, f := range part.Items {
			after = f.ID
			if !strings.HasPrefix(f.ID, typed) {
				continue
			}
			name := cli.Name{Word: f.ID, About: string(f.Kind)}
			if f.Kind == view.FileDir {
				name.Word += "/"
			}
			out = append(out, name)
		}
		if !part.More || len(part.Items) == 0 {
			break
		}
	}
	return out, nil
}
