package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"choir.dev/choiros/internal/defence"
)

// Resolver turns a name into addresses, on the host.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// rooted is the host's resolver without its search list: every name counts as fully qualified.
type rooted struct{ resolver *net.Resolver }

func (r rooted) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return r.resolver.LookupNetIP(ctx, network, host+".")
}

var (
	// notPublic4 are the IPv4 blocks that are not the public internet.
	notPublic4 = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4")
	// public6 is the only IPv6 block in public use. Parts of it are not public, or carry an
	// IPv4 address that somebody else would have to check.
	public6    = netip.MustParsePrefix("2000::/3")
	notPublic6 = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// public reports whether an address is on the public internet.
func public(ip netip.Addr) bool {
	ip = ip.Unmap()
	in := func(p netip.Prefix) bool { return p.Contains(ip) }
	if ip.Is4() {
		return !slices.ContainsFunc(notPublic4, in)
	}
	return ip.Zone() == "" && public6.Contains(ip) && !slices.ContainsFunc(notPublic6, in)
}

const (
	resolveTime  = 5 * time.Second
	maxAddresses = 16
)

var errAddress = errors.New("the name resolves to an address that boxes may not reach")

// addresses returns the addresses at which the target may be dialled. All addresses of a
// name must be allowed: a name with one that is not can't be trusted.
func (p *Proxy) addresses(ctx context.Context, t Target, anywhere bool) ([]netip.AddrPort, error) {
	ips := []netip.Addr{t.IP}
	if !t.IP.IsValid() {
		ctx, cancel := context.WithTimeout(ctx, resolveTime)
		defer cancel()
		var err error
		if ips, err = p.opt.Resolver.LookupNetIP(ctx, "ip", t.Host); err != nil {
			return nil, fmt.Errorf("the name can't be resolved: %w", err)
		}
	}
	if len(ips) == 0 {
		return nil, errors.New("the name has no address")
	}
	if len(ips) > maxAddresses {
		ips = ips[:maxAddresses]
	}
	own, err := p.opt.Own()
	if err != nil {
		return nil, fmt.Errorf("this machine's own addresses are not known: %w", err)
	}
	var out []netip.AddrPort
	for _, ip := range ips {
		ap := netip.AddrPortFrom(ip.Unmap(), t.Port)
		if anywhere && !ap.Addr().IsLinkLocalUnicast() && !ap.Addr().IsMulticast() && !ap.Addr().IsUnspecified() {
			out = append(out, ap)
			continue
		}
		if !slices.Contains(p.opt.AllowPrivate, ap) && !defence.Off(defence.EgressAddresses) && (!public(ap.Addr()) || slices.Contains(own, ap.Addr())) {
			return nil, fmt.Errorf("%w (%s)", errAddress, ap.Addr())
		}
		out = append(out, ap)
	}
	return out, nil
}

// ownAddresses are the addresses of this machine's interfaces; a public one
// would lead to services that are meant for this machine only.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out, nil
}
