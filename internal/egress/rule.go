package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
)

// Rule lets a box reach one host, or all names below a suffix, on one port.
type Rule struct {
	host   string     // canonical, without "*."
	ip     netip.Addr // valid if host is an address
	suffix bool       // names below host, not host itself
	port   uint16
	plain  bool // not TLS: no server name is checked
}

// ParseRule parses host:port or *.suffix:port. A tunnel must carry TLS for that very host, unless
// the rule starts with tcp://, which git over ssh needs.
func ParseRule(s string) (Rule, error) {
	var r Rule
	rest, plain := strings.CutPrefix(s, "tcp://")
	r.plain = plain
	rest, r.suffix = strings.CutPrefix(rest, "*.")
	t, err := ParseTarget(rest)
	if err != nil {
		return Rule{}, fmt.Errorf("rule %q: %w; write it as host:port, *.suffix:port or tcp://host:port", contract.Shorten(s, 80), err)
	}
	if r.suffix && (t.IP.IsValid() || !strings.Contains(t.Host, ".")) {
		return Rule{}, fmt.Errorf("rule %q: the suffix must have at least two labels, such as *.example.org:443", contract.Shorten(s, 80))
	}
	r.host, r.ip, r.port = t.Host, t.IP, t.Port
	return r, nil
}

// Match reports whether the rule lets a box reach the target.
func (r Rule) Match(t Target) bool {
	if t.Port != r.port && !defence.Off(defence.EgressPorts) || t.IP.IsValid() != r.ip.IsValid() {
		return false
	}
	if r.suffix && defence.Off(defence.EgressSuffix) {
		return strings.HasSuffix(t.Host, r.host)
	}
	if r.suffix {
		return strings.HasSuffix(t.Host, "."+r.host)
	}
	return t.Host == r.host
}

func (r Rule) String() string {
	s := Target{Host: r.host, IP: r.ip, Port: r.port}.String()
	if r.suffix {
		s = "*." + s
	}
	if r.plain {
		s = "tcp://" + s
	}
	return s
}

// Policy says what one box may reach. The zero Policy allows nothing, and neither does one with
// Err, which says why it could not be loaded.
type Policy struct {
	Profile contract.EgressProfile
	Rules   []Rule
	Err     error
	// Anywhere allows a name to resolve to an address that is not public, as the name of a mirror
	// in the machine's own network does. It is meant for a box that runs no agent's code and whose
	// rules are the machine's own configuration. Link-local addresses, where clouds serve
	// credentials, stay refused.
	Anywhere bool
}

// Allows returns the rule that lets a box reach the target.
func (p Policy) Allows(t Target) (Rule, bool) {
	if p.Err != nil && !defence.Off(defence.EgressFailed) {
		return Rule{}, false
	}
	for _, r := range p.Rules {
		if r.Match(t) {
			return r, true
		}
	}
	return Rule{}, false
}

// ParseRules reads rules; the first malformed one is an error.
func ParseRules(texts []string) ([]Rule, error) {
	var out []Rule
	for _, s := range texts {
		r, err := ParseRule(s)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// RemoteRule is the rule for a git remote as git spells it: a URL, or
// user@host:path.
func RemoteRule(remote string) (Rule, error) {
	if !strings.Contains(remote, "://") {
		host, _, ok := strings.Cut(remote, ":")
		if !ok || strings.Contains(host, "/") || host == "" || strings.Contains(remote, "::") {
			return Rule{}, errors.New("the remote is not on another host")
		}
		_, after, isUser := strings.Cut(host, "@")
		if isUser {
			host = after
		}
		return ParseRule("tcp://" + host + ":22")
	}
	return urlRule(remote)
}

// urlRule is the rule for the host of a URL.
func urlRule(raw string) (Rule, error) {
	u, err := url.Parse(strings.TrimPrefix(raw, "sparse+"))
	if err != nil || u.Hostname() == "" {
		return Rule{}, errors.New("it is not a URL with a host")
	}
	port, plain := u.Port(), ""
	def := ""
	switch u.Scheme {
	case "https":
		def = "443"
	case "ssh", "git+ssh":
		def, plain = "22", "tcp://"
	case "git":
		def, plain = "9418", "tcp://"
	default:
		return Rule{}, fmt.Errorf("its scheme %q is not let out; plain http can't be checked", contract.Shorten(u.Scheme, 20))
	}
	if port == "" {
		port = def
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return ParseRule(plain + host + ":" + port)
}
