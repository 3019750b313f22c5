package mcpservers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/effect"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/mcpclient"
	"choir.dev/choiros/internal/tool"
)

// starting is how much longer a call may take in which the server is started and asked what it offers.
const starting = 2 * time.Minute

// offer makes what is approved the tools that tasks may use.
func (s *Servers) offer() error {
	var tools []catalogue.HostTool
	s.mu.Lock()
	for name, k := range s.known {
		for _, a := range k.approved {
			use, _ := mcpclient.Usable([]mcpclient.Offer{a.offer}, map[string]mcpclient.Approved{a.offer.Name: a.Approved})
			for _, o := range use {
				t := o.Tool.Within(starting)
				t.Granted = true // whoever approved it approved its calls
				tools = append(tools, catalogue.HostTool{Tool: t, Outside: outside(name, o), Call: func(ctx context.Context, c catalogue.HostCall) (tool.Result, error) {
					return s.call(ctx, name, o, c)
				}})
			}
		}
	}
	s.mu.Unlock()
	slices.SortFunc(tools, func(a, b catalogue.HostTool) int { return strings.Compare(a.Name, b.Name) })
	return s.options.Offer(tools)
}

// call makes one call of a tool that was approved, unless it is other than that now. Whatever the
// server does is a result; only the end of ctx is an error.
func (s *Servers) call(ctx context.Context, name string, o mcpclient.Offer, c catalogue.HostCall) (tool.Result, error) {
	res, err := s.tryCall(ctx, name, o, c)
	switch {
	case err == nil:
		return res, nil
	case ctx.Err() != nil:
		return tool.Result{}, fault.Wrap("mcpservers.call", context.Cause(ctx))
	}
	return tool.Failed("the server %s can't be used now: %s", name, contract.Clip(fault.Text(err), 2000)).End(contract.EffectFailed), nil
}

// outside is what the ledger of effects needs to know of a tool that does not only read.
func outside(server string, o mcpclient.Offer) *catalogue.Outside {
	if !o.Tool.Has(tool.Irreversible) {
		return nil
	}
	return &catalogue.Outside{Kind: contract.EffectMCP, Target: contract.Line(server + " " + o.Name), Key: effect.KeyProperty(o.Tool.Schema), Harmless: o.Harmless}
}

func (s *Servers) tryCall(ctx context.Context, name string, o mcpclient.Offer, c catalogue.HostCall) (tool.Result, error) {
	l, offers, err := s.asked(ctx, name)
	if err != nil {
		return tool.Result{}, err
	}
	defer s.living.rest(l)
	within, stop := l.within(ctx)
	defer stop()
	k, err := s.get(name)
	if err != nil {
		return tool.Result{}, err
	}
	approved := map[string]mcpclient.Approved{}
	for tool, a := range k.approved {
		approved[tool] = a.Approved
	}
	use, _ := mcpclient.Usable(offers, approved)
	if !slices.ContainsFunc(use, func(u mcpclient.Offer) bool { return u.Name == o.Name }) {
		return s.changed(within, name, o, offers, c)
	}
	res, err := l.Call(within, o.Tool.Name, c.Args)
	if err != nil && ctx.Err() == nil { // it was ended while the call was under way, by whoever ended it
		return tool.Failed("the server %s ended during the call: %s; what the call did is not known", name, contract.Clip(fault.Text(l.hide(err)), 2000)).End(contract.EffectUnknown), nil
	}
	if err != nil {
		return tool.Result{}, l.hide(err)
	}
	res.Output = l.without(res.Output)
	return res, nil
}

// changed records that a tool is other than what was approved, so that it is not offered any more.
func (s *Servers) changed(ctx context.Context, name string, o mcpclient.Offer, offers []mcpclient.Offer, c catalogue.HostCall) (tool.Result, error) {
	p := &contract.MCPChanged{Server: name, Tool: o.Name, Reason: "the server does not offer it any more"}
	if i := slices.IndexFunc(offers, func(n mcpclient.Offer) bool { return n.Name == o.Name }); i >= 0 {
		p.Digest, p.Reason = offers[i].Digest, "the server describes it otherwise than when it was approved"
		if offers[i].Refused != "" {
			p.Reason = contract.Line(contract.Clip("it can't be used any more: "+offers[i].Refused, 500))
		}
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	k, err := s.get(name)
	if err != nil {
		return tool.Result{}, err
	}
	if a, ok := k.approved[o.Name]; ok && a.Digest == o.Digest { // nobody recorded it, or approved it again, meanwhile
		d := draft(contract.System(), "mcp.changed", name, p)
		d.Run, d.Task = c.Run, c.Task
		if err := s.record(ctx, d); err != nil {
			return tool.Result{}, err
		}
	}
	return tool.Failed("%s was not called: %s. A person has to approve it again (choir mcp show %s); do without it, and say so.", o.Tool.Name, p.Reason, name).End(contract.EffectFailed), nil
}

// offers asks a server what it offers now, and starts it for that.
func (s *Servers) offers(ctx context.Context, name string) ([]mcpclient.Offer, error) {
	l, offers, err := s.asked(ctx, name)
	if err != nil {
		return nil, fault.Wrap("mcpservers.offers", err)
	}
	s.living.rest(l)
	return offers, nil
}

// asked returns a server with what it offers now; whoever gets it calls rest after. One that does not say is ended,
// and if it had been running, another one is started in its place: it may have broken in the call before. While
// it works at another's call it may only be busy, and what that call does outside would not be known: then it goes
// on, and who asked is refused.
func (s *Servers) asked(ctx context.Context, name string) (*live, []mcpclient.Offer, error) {
	for {
		l, ran, err := s.reach(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		within, stop := l.within(ctx)
		offers, err := l.Offers(within)
		stop()
		if err == nil && s.living.answered(l) {
			return l, offers, nil
		}
		if ctx.Err() != nil {
			s.living.leave(l)
			return nil, nil, context.Cause(ctx)
		}
		if s.living.giveUp(l) {
			return nil, nil, fault.New("", fault.Unavailable, "Try again once that call is over.", fmt.Errorf("it works at another call, and did not say what it offers: %s", fault.Text(l.hide(err))))
		}
		if !ran || s.options.Awake.Err() != nil {
			return nil, nil, l.hide(cmp.Or(err, errEnded))
		}
	}
}

// secret is one that a server was given.
type secret struct{ name, value string }

// leastHidden is how long a secret is at least that is found in a text.
const leastHidden = 4

// without is a text without the secrets that the server was given, as far as it says them as they are.
func (l *live) without(text string) string {
	for _, s := range l.secrets {
		if len(s.value) >= leastHidden {
			text = strings.ReplaceAll(text, s.value, "[the secret "+s.name+"]")
		}
	}
	return text
}

// hide is an error without them, with the end of what the server wrote beside its messages.
func (l *live) hide(err error) error {
	text := fault.Text(err)
	if said := l.stderr.String(); said != "" {
		text += "; it wrote: " + said
	}
	return fault.New("", fault.CodeOf(err), fault.HintOf(err), fmt.Errorf("%s", l.without(text)))
}
