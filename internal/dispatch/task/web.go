package task

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/webtools"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/webpage"
)

// Bounds of the web's tools.
const (
	pageTime   = 90 * time.Second // for one page, its box included
	maxAway    = 4                // redirects to other hosts
	maxTries   = 3                // times that a run asks for an address which gives no page
	usualFinds = 10
)

// WebTools are the tools for the web, of which a computer has those that it can carry out.
func WebTools(pages ports.Pages, search ports.Search) []catalogue.HostTool {
	var out []catalogue.HostTool
	if pages != nil {
		out = append(out, catalogue.HostTool{Tool: webtools.Fetch(),
			Call: byAttempt(func(a *attempt, ctx context.Context, args json.RawMessage) (tool.Result, error) {
				return a.fetch(ctx, pages, args)
			})}, requestTool(pages))
	}
	if search != nil {
		out = append(out, catalogue.HostTool{Tool: webtools.Search(search.Provider()),
			Call: byAttempt(func(a *attempt, ctx context.Context, args json.RawMessage) (tool.Result, error) {
				return a.search(ctx, search, args)
			})})
	}
	return out
}

// fetch reads a page if the run may, and shows a part of it. What answered once is not asked again in the run, whatever it
// answered: how often it is asked would tell it something.
func (a *attempt) fetch(ctx context.Context, pages ports.Pages, args json.RawMessage) (tool.Result, error) {
	var in struct {
		URL    string `json:"url"`
		Offset int    `json:"offset"`
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return tool.Failed("%v", err), nil
	}
	asked, err := webpage.Parse(in.URL)
	if err != nil {
		return tool.Failed("This address can't be read: %s.", err), nil
	}
	why, err := a.mayRead(ctx, asked, in.Reason)
	if err != nil {
		return tool.Result{}, err
	}
	if why != "" {
		return tool.Failed("%s was not read: %s. Do without it, and say so in your summary; asking again does not help.", asked.URL, why), nil
	}
	if p, text, ok := a.read(ctx, asked); ok {
		return webtools.Page(p, text, in.Offset), nil
	}
	if a.run.CountRead(asked.URL) > maxTries {
		return tool.Failed("%s gave no page %d times, and is not asked again in this run. Do without it, and say so in your summary.", asked.URL, maxTries), nil
	}
	page, why, err := a.follow(ctx, pages, asked)
	if err != nil {
		return tool.Result{}, err
	}
	if why != "" {
		return webtools.NoPage(asked.URL, why, cmp.Or(page.Redirect, page.Failed)), nil
	}
	p := contract.PageFetched{URL: asked.URL, From: page.From, Title: page.Title, Media: page.Media, Status: page.Status, Bytes: page.Bytes, Truncated: page.Truncated}
	if p.Text, _, err = a.host.Blobs.Put(ctx, a.host.CID, strings.NewReader(page.Text)); err != nil {
		return tool.Result{}, fault.Wrap("dispatch.fetch", err)
	}
	if _, err := a.run.Append(ctx, contract.Draft{Actor: contract.AssociateOf(a.ref.Task), Type: "page.fetched", Subject: a.ref.Task, Task: a.ref.Task, Data: &p}); err != nil {
		return tool.Result{}, err
	}
	return webtools.Page(p, page.Text, in.Offset), nil
}

// follow reads a page, from another host if the server sends it there and the run may read that address.
func (a *attempt) follow(ctx context.Context, pages ports.Pages, at webpage.Address) (page webpage.Page, why string, err error) {
	for range maxAway {
		timed, cancel := awake.WithTimeout(ctx, pageTime)
		page, err = pages.Fetch(timed, ports.PageRequest{Run: a.ref.Run, Task: a.ref.Task, Address: at, Decided: a.decided})
		cancel()
		switch {
		case ctx.Err() != nil:
			return page, "", context.Cause(ctx)
		case err != nil:
			return page, "its box failed: " + fault.Text(err), nil
		case page.Failed != "":
			return page, "there is no page", nil
		case page.Redirect == "":
			// A box says so, in which a page was read.
			if from, err := webpage.Parse(page.From); err != nil || from.Target() != at.Target() {
				return page, "its reader says that it is another host's", nil
			}
			return page, "", nil
		}
		next, err := webpage.Parse(page.Redirect)
		if err != nil {
			return page, "it redirects to an address that is not read", nil
		}
		if !defence.Off(defence.FetchRedirect) {
			why, err := a.mayRead(ctx, next, "The page at "+at.Host+" sends its readers there.")
			if err != nil || why != "" {
				return page, "it redirects to another host, whose page was not read: " + why, err
			}
		}
		at = next
	}
	return page, "it redirects too often", nil
}

// mayRead decides whether the run may read a page: if the user or a search named its address, or if a person
// allows it now. why says why it may not. What is anywhere in a page never counts, so that no text that
// an agent reads has it carry something out in an address.
func (a *attempt) mayRead(ctx context.Context, at webpage.Address, reason string) (why string, err error) {
	named := defence.Off(defence.FetchAddresses)
	a.run.Story(func(s *story.Run) {
		named = named || s.Web.Found[at.URL]
		for _, said := range s.Said {
			named = named || own(said) && slices.Contains(webpage.Named(said.Text), at.URL)
		}
	})
	if named {
		return "", nil
	}
	w, why, err := a.request(ctx, contract.Act{Kind: contract.ApprovalFetch, Run: a.ref.Run, Host: at.Host, Port: at.Port, URL: at.URL}, at.URL, contract.Claim(reason), nil)
	if err != nil || why != "" {
		return why, err
	}
	if err := a.awaitApprovals(ctx, []*waiting{w}); err != nil {
		return "", err
	}
	if err := a.run.Settle(ctx); err != nil {
		return "", err
	}
	return a.refusal(w), nil
}

// own reports whether it was the user who chose the words: not the desktop's page, which agents write, and not
// a model that offered them as an answer.
func own(s story.Saying) bool {
	return (s.By == contract.KindPerson || defence.Off(defence.FetchPerson)) && (!s.Choice || defence.Off(defence.FetchChoices))
}

// read returns a page that the run has read, as it was then.
func (a *attempt) read(ctx context.Context, at webpage.Address) (p contract.PageFetched, text string, ok bool) {
	a.run.Story(func(s *story.Run) { p, ok = s.Web.Pages[at.URL] })
	if !ok {
		return p, "", false
	}
	text, err := a.blob(ctx, p.Text)
	return p, text, err == nil // what is lost is read again
}

// search asks the search service, and records what it names.
func (a *attempt) search(ctx context.Context, service ports.Search, args json.RawMessage) (tool.Result, error) {
	var in struct {
		Query string `json:"query"`
		Count int    `json:"count"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return tool.Failed("%v", err), nil
	}
	if in.Count == 0 {
		in.Count = usualFinds
	}
	found, err := service.Search(ctx, in.Query, in.Count)
	if err != nil {
		if ctx.Err() != nil {
			return tool.Result{}, context.Cause(ctx)
		}
		return tool.Failed("The search failed: %s. %s", strings.TrimSuffix(fault.Text(err), "."), fault.HintOf(err)), nil
	}
	p := &contract.SearchAnswered{Provider: service.Provider(), Query: in.Query}
	for _, f := range found {
		p.Results = append(p.Results, contract.FoundPage{URL: f.URL, Title: f.Title})
	}
	if _, err := a.run.Append(ctx, contract.Draft{Actor: contract.AssociateOf(a.ref.Task), Type: "search.answered", Subject: a.ref.Task, Task: a.ref.Task, Data: p}); err != nil {
		return tool.Result{}, err
	}
	return webtools.Found(service.Provider(), found), nil
}
