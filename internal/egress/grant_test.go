package egress_test

import (
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/egress"
)

func spec(allow ...string) contract.EgressSpec {
	return contract.EgressSpec{Profile: contract.EgressCustom, Allow: allow}
}

func texts(p egress.Policy) string {
	var out []string
	for _, r := range p.Rules {
		out = append(out, r.String())
	}
	return strings.Join(out, " ")
}

// TestATaskCanOnlyNarrow shows that of the hosts that a task names, its box reaches those that are
// within the computer's grant, or that a person approved with that very host and port.
func TestATaskCanOnlyNarrow(t *testing.T) {
	s := testSources(t, nil)
	s.Extra = rules(t, "extra.example:443", "*.wide.example:443", "tcp://ssh.example:22")
	for _, c := range []struct {
		name     string
		spec     contract.EgressSpec
		approved []string
		want     string
		beyond   []string
	}{
		{"none", contract.EgressSpec{Profile: contract.EgressNone}, []string{"evil.example:443"}, "", nil},
		{"default", contract.EgressSpec{Profile: contract.EgressDefault}, []string{"evil.example:443"},
			"*.wide.example:443 extra.example:443 git.example:443 registry.example:443 tcp://ssh.example:22", nil},
		{"nothing named", spec(), nil, "", nil},
		{"granted", spec("registry.example:443"), nil, "registry.example:443", nil},
		{"within a suffix", spec("a.wide.example:443", "*.b.wide.example:443"), nil, "*.b.wide.example:443 a.wide.example:443", nil},
		{"granted as raw", spec("ssh.example:22"), nil, "tcp://ssh.example:22", nil},
		{"beyond", spec("evil.example:443", "registry.example:443", "EVIL.example:443"), nil, "registry.example:443", []string{"evil.example:443"}},
		{"another port", spec("registry.example:22"), nil, "", []string{"registry.example:22"}},
		{"a wider suffix", spec("*.example:443"), nil, "", nil},
		{"a suffix of a host", spec("*.registry.example:443", "*.wide.example:444"), nil, "", []string{"*.registry.example:443", "*.wide.example:444"}},
		{"the suffix itself", spec("wide.example:443"), nil, "", []string{"wide.example:443"}},
		{"approved", spec("evil.example:443"), []string{"evil.example:443"}, "evil.example:443", []string{"evil.example:443"}},
		{"approved for another port", spec("evil.example:443"), []string{"evil.example:444"}, "", []string{"evil.example:443"}},
		{"approved and not named", spec("registry.example:443"), []string{"evil.example:443"}, "registry.example:443", nil},
	} {
		p := s.Policy(t.Context(), c.spec, rules(t, c.approved...)...)
		if c.name == "a wider suffix" { // it can't be parsed as a rule
			if p.Err == nil || len(p.Rules) != 0 {
				t.Errorf("%s: %+v", c.name, p)
			}
			continue
		}
		beyond, err := s.BeyondGrant(t.Context(), c.spec)
		if p.Err != nil || err != nil || texts(p) != c.want || !slices.Equal(beyond, c.beyond) {
			t.Errorf("%s: %q beyond %q (%v, %v), want %q beyond %q", c.name, texts(p), beyond, p.Err, err, c.want, c.beyond)
		}
	}
}

// TestNoTaskNamesARawTunnel shows that a task can't name a raw tunnel, not even a granted one.
func TestNoTaskNamesARawTunnel(t *testing.T) {
	s := testSources(t, nil)
	s.Extra = rules(t, "tcp://ssh.example:22")
	for _, host := range []string{"tcp://evil.example:25", "tcp://ssh.example:22"} {
		p := s.Policy(t.Context(), spec(host), rules(t, host)...)
		if p.Err == nil || len(p.Rules) != 0 {
			t.Errorf("%s: %+v", host, p)
		}
		if _, err := s.BeyondGrant(t.Context(), spec(host)); err == nil {
			t.Errorf("%s could be asked for", host)
		}
	}
}
