package mcpservers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/mcpclient"
	"choir.dev/choiros/internal/view"
)

// Limits of one computer.
const (
	maxServers  = 16
	maxApproved = 40 // tools of all servers: each stands in the Director's first request
)

// Options are the parts that the servers of one computer use.
type Options struct {
	Append func(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
	Events func(ctx context.Context, q view.EventQuery) (view.EventPage, error)
	// Payload decodes an event's data.
	Payload func(ctx context.Context, e contract.Event) (contract.Payload, error)
	Boxes   *boxes.Boxes
	// Secret returns a secret of the vault; fault.NotFound if there is none.
	Secret func(ctx context.Context, name string) (string, error)
	// Offer makes tools the ones that tasks may use, in place of those before.
	Offer   func(tools []catalogue.HostTool) error
	Version string
	// Awake ends when the computer falls asleep.
	Awake  context.Context
	Logger *slog.Logger
}

// Servers are those of one computer that is awake. It is safe for concurrent use.
type Servers struct {
	options Options
	living  living

	changing sync.Mutex // held from a decision until its event is in the log and applied

	mu    sync.Mutex
	known map[string]*server
}

// server is what the log says of a server.
type server struct {
	contract.MCPAdded
	since    time.Time
	approved map[string]approval
	changed  map[string]contract.MCPChanged // was approved, and is not used until it is again
}

// approval is what a person approved of a tool.
type approval struct {
	mcpclient.Approved
	offer mcpclient.Offer
}

// eventTypes are all that say something of servers.
var eventTypes = []string{"mcp.added", "mcp.removed", "mcp.approved", "mcp.revoked", "mcp.changed"}

// New reads from the log what is known, and offers what is approved. No server is started.
func New(ctx context.Context, o Options) (*Servers, error) {
	const op = "mcpservers.New"
	s := &Servers{options: o, known: map[string]*server{}, living: living{slots: map[string]*slot{}}}
	for q := (view.EventQuery{Types: eventTypes, Limit: 100}); ; {
		page, err := o.Events(ctx, q)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		for _, e := range page.Events {
			p, err := o.Payload(ctx, e)
			if err != nil && e.Type == "mcp.approved" { // nothing is used that nobody knows
				o.Logger.Warn("an approval of an MCP server's tool can't be read; approve it again", "sequence", e.Sequence, "error", err)
				continue
			}
			if err != nil {
				return nil, fault.Wrap(op, err)
			}
			s.apply(e.Time, p)
		}
		if q.After = page.Next; !page.More {
			break
		}
	}
	if len(s.known) == 0 {
		return s, nil
	}
	return s, fault.Wrap(op, s.offer())
}

// apply takes an event in.
func (s *Servers) apply(at time.Time, p contract.Payload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p := p.(type) {
	case *contract.MCPAdded:
		s.known[p.Server] = &server{MCPAdded: *p, since: at, approved: map[string]approval{}, changed: map[string]contract.MCPChanged{}}
	case *contract.MCPRemoved:
		delete(s.known, p.Server)
	case *contract.MCPApproved:
		if k := s.known[p.Server]; k != nil {
			o, err := mcpclient.Recall(p.Server, p.Definition, p.Digest)
			if err != nil { // it was approved by rules that this version does not have
				k.changed[p.Tool] = contract.MCPChanged{Server: p.Server, Tool: p.Tool, Reason: contract.Line(fault.Text(err))}
				return
			}
			k.approved[p.Tool] = approval{mcpclient.Approved{Digest: p.Digest, Reads: p.Reads}, o}
			delete(k.changed, p.Tool)
		}
	case *contract.MCPRevoked:
		if k := s.known[p.Server]; k != nil {
			delete(k.approved, p.Tool)
			delete(k.changed, p.Tool)
		}
	case *contract.MCPChanged:
		if k := s.known[p.Server]; k != nil {
			delete(k.approved, p.Tool)
			k.changed[p.Tool] = *p
		}
	}
}

// record appends events and takes them in. The caller holds changing.
func (s *Servers) record(ctx context.Context, drafts ...contract.Draft) error {
	events, err := s.options.Append(ctx, drafts...)
	if err != nil {
		return err
	}
	for i, d := range drafts {
		s.apply(events[i].Time, d.Data)
	}
	return s.offer()
}

func draft(by contract.Actor, eventType, server string, data contract.Payload) contract.Draft {
	return contract.Draft{Actor: by, Type: eventType, Subject: "mcp/" + server, Data: data}
}

// get returns what is known of a server; its maps are copies.
func (s *Servers) get(name string) (server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.known[name]
	if k == nil {
		return server{}, fault.New("mcpservers", fault.NotFound, "List them with: choir mcp list", fmt.Errorf("no server is called %q", contract.Shorten(name, 40)))
	}
	out := *k
	out.approved, out.changed = maps.Clone(k.approved), maps.Clone(k.changed)
	return out, nil
}

// Add adds a server for a person. Nothing is started, and nothing of it is used before it is approved.
func (s *Servers) Add(ctx context.Context, by contract.Actor, in view.NewMCPServer) (view.MCPServer, error) {
	const op = "mcpservers.Add"
	p := &contract.MCPAdded{Server: in.Name, Command: in.Command, URL: in.URL, Egress: in.Egress, Bearer: in.Bearer, Files: in.Files}
	names := []string{}
	for _, given := range in.Secrets {
		p.Secrets = append(p.Secrets, contract.MCPSecret{Variable: given.Variable, Secret: given.Secret})
		names = append(names, given.Secret)
	}
	if in.Bearer != "" {
		names = append(names, in.Bearer)
	}
	if err := mcpclient.CheckName(in.Name); err != nil {
		return view.MCPServer{}, fault.Wrap(op, err)
	}
	if err := p.Validate(); err != nil {
		return view.MCPServer{}, fault.New(op, fault.Invalid, "", err)
	}
	if _, err := rulesOf(*p); err != nil {
		return view.MCPServer{}, fault.New(op, fault.Invalid, "Write a host as host:port, and hosts as *.suffix:port.", err)
	}
	// The secrets are the machine's: who may not see to them gives none of them to a program of theirs.
	if len(names) > 0 && !by.Can(contract.CanSecrets) {
		return view.MCPServer{}, fault.Wrap(op, grant.Refuse(contract.CanSecrets))
	}
	for _, name := range names {
		if _, err := s.options.Secret(ctx, name); err != nil {
			return view.MCPServer{}, fault.Wrap(op, err)
		}
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	_, there := s.known[in.Name]
	n := len(s.known)
	s.mu.Unlock()
	switch {
	case there:
		return view.MCPServer{}, fault.New(op, fault.Conflict, "Remove it first, or give this one another name.", fmt.Errorf("a server is called %s already", in.Name))
	case n >= maxServers:
		return view.MCPServer{}, fault.New(op, fault.Exhausted, "Remove one first.", fmt.Errorf("the computer has %d servers", n))
	}
	if err := s.record(ctx, draft(by, "mcp.added", in.Name, p)); err != nil {
		return view.MCPServer{}, fault.Wrap(op, err)
	}
	k, err := s.get(in.Name)
	return s.shown(k), err
}

// rulesOf are what a server's box, or the host on its behalf, may reach.
func rulesOf(p contract.MCPAdded) ([]egress.Rule, error) {
	if p.URL != "" {
		rule, err := egress.RemoteRule(p.URL)
		return []egress.Rule{rule}, err
	}
	for _, text := range p.Egress {
		if strings.HasPrefix(text, "tcp:") {
			return nil, fmt.Errorf("%q is a raw connection, which only the configuration grants (egress.allow)", contract.Shorten(text, 80))
		}
	}
	return egress.ParseRules(p.Egress)
}

// Remove removes a server with all that was approved of it, and ends it.
func (s *Servers) Remove(ctx context.Context, by contract.Actor, name string) error {
	const op = "mcpservers.Remove"
	s.changing.Lock()
	defer s.changing.Unlock()
	if _, err := s.get(name); err != nil {
		return err
	}
	if err := s.record(ctx, draft(by, "mcp.removed", name, &contract.MCPRemoved{Server: name})); err != nil {
		return fault.Wrap(op, err)
	}
	s.living.drop(name)
	return nil
}

// Approve approves tools of a server as their digests say, which are those that the person was shown.
func (s *Servers) Approve(ctx context.Context, by contract.Actor, name string, tools []view.MCPApproval) (view.MCPServer, error) {
	const op = "mcpservers.Approve"
	offers, err := s.offers(ctx, name)
	if err != nil {
		return view.MCPServer{}, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	k, err := s.get(name)
	if err != nil {
		return view.MCPServer{}, err
	}
	all := s.approvedElsewhere(name)
	will := maps.Clone(k.approved)
	var drafts []contract.Draft
	for _, t := range tools {
		i := slices.IndexFunc(offers, func(o mcpclient.Offer) bool { return o.Name == t.Tool })
		switch {
		case i < 0:
			return view.MCPServer{}, fault.New(op, fault.NotFound, "See what it offers with: choir mcp show "+name, fmt.Errorf("%s offers no %q", name, contract.Shorten(t.Tool, 60)))
		case offers[i].Refused != "":
			return view.MCPServer{}, fault.New(op, fault.Invalid, "", fmt.Errorf("%s can't be used: %s", t.Tool, offers[i].Refused))
		case offers[i].Digest != t.Digest:
			return view.MCPServer{}, fault.New(op, fault.Conflict, "Look again at what it is now: choir mcp show "+name, fmt.Errorf("%s is other than what was shown", t.Tool))
		case t.Reads && !offers[i].Says:
			return view.MCPServer{}, fault.New(op, fault.Invalid, "Approve it without that.", fmt.Errorf("%s does not say of itself that it only reads", t.Tool))
		}
		will[t.Tool] = approval{}
		drafts = append(drafts, draft(by, "mcp.approved", name, &contract.MCPApproved{Server: name, Tool: t.Tool, Definition: offers[i].Definition, Digest: t.Digest, Reads: t.Reads}))
	}
	if all+len(will) > maxApproved {
		return view.MCPServer{}, fault.New(op, fault.Exhausted, "Approve only those that are needed; take others back with: choir mcp revoke", fmt.Errorf("%d tools of servers would be approved; at most %d are", all+len(will), maxApproved))
	}
	if len(drafts) > 0 {
		if err := s.record(ctx, drafts...); err != nil {
			return view.MCPServer{}, fault.Wrap(op, err)
		}
	}
	if k, err = s.get(name); err != nil {
		return view.MCPServer{}, err
	}
	return s.offering(k, offers), nil
}

func (s *Servers) approvedElsewhere(but string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, k := range s.known {
		if name != but {
			n += len(k.approved)
		}
	}
	return n
}

// Revoke takes approvals back.
func (s *Servers) Revoke(ctx context.Context, by contract.Actor, name string, tools []string) (view.MCPServer, error) {
	const op = "mcpservers.Revoke"
	s.changing.Lock()
	defer s.changing.Unlock()
	k, err := s.get(name)
	if err != nil {
		return view.MCPServer{}, err
	}
	var drafts []contract.Draft
	for _, t := range tools {
		_, approved := k.approved[t]
		if _, changed := k.changed[t]; !approved && !changed {
			return view.MCPServer{}, fault.New(op, fault.NotFound, "See what is with: choir mcp list", fmt.Errorf("%q of %s is not approved", contract.Shorten(t, 60), name))
		}
		drafts = append(drafts, draft(by, "mcp.revoked", name, &contract.MCPRevoked{Server: name, Tool: t}))
	}
	if err := s.record(ctx, drafts...); err != nil {
		return view.MCPServer{}, fault.Wrap(op, err)
	}
	k, err = s.get(name)
	return s.shown(k), err
}

// List returns all servers by name, with what is approved of them. None is started.
func (s *Servers) List() []view.MCPServer {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.known))
	s.mu.Unlock()
	out := []view.MCPServer{}
	for _, name := range names {
		if k, err := s.get(name); err == nil {
			out = append(out, s.shown(k))
		}
	}
	return out
}

// Show returns a server with all that it offers now, for which it is started.
func (s *Servers) Show(ctx context.Context, name string) (view.MCPServer, error) {
	offers, err := s.offers(ctx, name)
	if err != nil {
		return view.MCPServer{}, err
	}
	k, err := s.get(name)
	if err != nil {
		return view.MCPServer{}, err
	}
	return s.offering(k, offers), nil
}

// Notes says, for people, which tools wait for them. Of a computer of which only the history is open s is nil.
func (s *Servers) Notes() []string {
	if s == nil {
		return nil
	}
	var out []string
	for _, k := range s.List() {
		if k.Waiting > 0 {
			out = append(out, fmt.Sprintf("The MCP server %s: of its tools %d that you approved became other ones, and are not used until you approve them again (choir mcp show %s).", k.ID, k.Waiting, k.ID))
		}
	}
	return out
}

// shown is a server as far as the log knows it.
func (s *Servers) shown(k server) view.MCPServer {
	v := view.MCPServer{ID: k.Server, Command: k.Command, URL: k.URL, Egress: k.Egress, Bearer: k.Bearer, Files: k.Files,
		Added: k.since, Running: s.living.runs(k.Server), Waiting: len(k.changed), Tools: []view.MCPTool{}}
	for _, g := range k.Secrets {
		v.Secrets = append(v.Secrets, view.MCPSecret{Variable: g.Variable, Secret: g.Secret})
	}
	for _, a := range k.approved {
		v.Tools = append(v.Tools, toolOf(a.offer, view.MCPToolApproved, a.Reads, ""))
	}
	for name, c := range k.changed {
		v.Tools = append(v.Tools, view.MCPTool{ID: name, State: view.MCPToolChanged, Reason: c.Reason})
	}
	slices.SortFunc(v.Tools, func(a, b view.MCPTool) int { return cmp.Compare(a.ID, b.ID) })
	return v
}

// offering is a server with what it offers now.
func (s *Servers) offering(k server, offers []mcpclient.Offer) view.MCPServer {
	v := s.shown(k)
	v.Tools = []view.MCPTool{}
	for _, o := range offers {
		was, approved := k.approved[o.Name]
		changed, before := k.changed[o.Name]
		switch {
		case o.Refused != "":
			v.Tools = append(v.Tools, toolOf(o, view.MCPToolRefused, false, o.Refused))
		case approved && was.Digest == o.Digest:
			v.Tools = append(v.Tools, toolOf(o, view.MCPToolApproved, was.Reads, ""))
		case approved:
			v.Tools = append(v.Tools, toolOf(o, view.MCPToolChanged, false, "it is other than what was approved"))
		case before:
			v.Tools = append(v.Tools, toolOf(o, view.MCPToolChanged, false, changed.Reason))
		default:
			v.Tools = append(v.Tools, toolOf(o, view.MCPToolNew, false, ""))
		}
	}
	return v
}

func toolOf(o mcpclient.Offer, state view.MCPToolState, reads bool, reason string) view.MCPTool {
	t := view.MCPTool{ID: o.Name, State: state, Reason: reason, Digest: o.Digest, SaysReads: o.Says, Reads: reads}
	if o.Refused == "" {
		t.As, t.Description, t.Schema = o.Tool.Name, o.Tool.Description, o.Tool.Schema
	}
	return t
}

// errAsleep says that nothing is started any more.
var errAsleep = errors.New("the computer is going to sleep")
