package egress

import (
	"context"
	"fmt"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
)

// granted are the rules of the computer: what any of its boxes may be given without asking
// a person. They come from the host alone.
func (s *Sources) granted(ctx context.Context) ([]Rule, error) {
	var out []Rule
	if s.Remotes != nil {
		remotes, err := s.Remotes(ctx)
		if err != nil {
			return nil, fmt.Errorf("recorded git remotes: %w", err)
		}
		for _, r := range remotes {
			rule, err := RemoteRule(r)
			if err != nil {
				s.Logger.Warn("a git remote gives no egress", "err", err)
				continue
			}
			out = append(out, rule)
		}
	}
	if s.Registries != nil {
		rules, err := s.Registries(ctx)
		if err != nil {
			return nil, fmt.Errorf("package registries: %w", err)
		}
		out = append(out, rules...)
	}
	return append(out, s.Extra...), nil
}

// BeyondGrant returns what spec names beyond the computer's grant, in its canonical form. A person has
// to be asked about it: a Policy contains none of it unless it was approved.
func (s *Sources) BeyondGrant(ctx context.Context, spec contract.EgressSpec) ([]string, error) {
	if spec.Profile != contract.EgressCustom || len(spec.Allow) == 0 {
		return nil, nil
	}
	granted, err := s.granted(ctx)
	if err != nil {
		return nil, err
	}
	wanted, err := wantedRules(spec.Allow)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, w := range wanted {
		if t := w.String(); len(narrow(w, granted)) == 0 && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// custom returns the rules of a policy that names its hosts: those that are within the grant or
// were approved.
func custom(allow []string, granted, approved []Rule) ([]Rule, error) {
	wanted, err := wantedRules(allow)
	if err != nil {
		return nil, err
	}
	var out []Rule
	for _, w := range wanted {
		within := narrow(w, granted)
		if len(within) == 0 && (slices.Contains(approved, w) || defence.Off(defence.EgressNarrow)) {
			within = []Rule{w}
		}
		out = append(out, within...)
	}
	return out, nil
}

// wantedRules parses the rules that a task names. None of them asks for a raw tunnel: whether there
// is one depends only on the rule that grants the host.
func wantedRules(allow []string) ([]Rule, error) {
	rules, err := ParseRules(allow)
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		if r.plain && !defence.Off(defence.EgressRawTCP) {
			return nil, fmt.Errorf("rule %q: a raw connection can only be granted in the configuration (egress.allow)", r)
		}
	}
	return rules, nil
}

// narrow returns the parts of the grant that a wanted rule names: for each granted rule
// that it lies within, the wanted rule in that rule's form.
func narrow(w Rule, granted []Rule) []Rule {
	var out []Rule
	for _, g := range granted {
		if w.within(g) {
			n := w
			n.plain = g.plain
			out = append(out, n)
		}
	}
	return out
}

// within reports whether every target of r is one of g.
func (r Rule) within(g Rule) bool {
	if r.suffix {
		return g.suffix && g.port == r.port && (r.host == g.host || Rule{host: g.host, suffix: true, port: g.port}.Match(Target{Host: r.host, Port: r.port}))
	}
	return g.Match(Target{Host: r.host, IP: r.ip, Port: r.port})
}

// Single returns the host and port of a rule that names only one; otherwise it returns false.
func (r Rule) Single() (host string, port int, ok bool) { return r.host, int(r.port), !r.suffix }
