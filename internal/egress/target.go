package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"choir.dev/choiros/internal/defence"
)

// Target is the host and port that a box asked for, in the one spelling that rules are compared
// with: lower-case ASCII without a trailing dot, or an IP address in its canonical form
// (IPv4-mapped IPv6 as IPv4).
type Target struct {
	Host string
	IP   netip.Addr // valid if Host is an address
	Port uint16
}

func (t Target) String() string {
	if t.IP.IsValid() {
		return netip.AddrPortFrom(t.IP, t.Port).String()
	}
	return t.Host + ":" + strconv.Itoa(int(t.Port))
}

const maxAuthority = 300

// ParseTarget parses host:port strictly. A spelling that another program could read as another host
// is an error.
func ParseTarget(s string) (Target, error) {
	if len(s) > maxAuthority {
		return Target{}, errors.New("the host is too long")
	}
	host, port, err := splitPort(s)
	if err != nil {
		return Target{}, err
	}
	t := Target{Port: port}
	if strings.HasPrefix(host, "[") {
		ip, err := netip.ParseAddr(host[1 : len(host)-1])
		if err != nil || !ip.Is6() || ip.Zone() != "" {
			return Target{}, errors.New("what stands in brackets is not an IPv6 address")
		}
		t.IP = ip.Unmap()
		t.Host = t.IP.String()
		return t, nil
	}
	t.Host, t.IP, err = canonical(host)
	return t, err
}

func splitPort(s string) (host string, port uint16, err error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", 0, errors.New("the port is missing")
	}
	host = s[:i]
	n, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s[i+1:] {
		return "", 0, errors.New("the port is not a number from 1 to 65535")
	}
	switch {
	case host == "":
		return "", 0, errors.New("the host is missing")
	case strings.HasPrefix(host, "[") != strings.HasSuffix(host, "]"), host == "[]":
		return "", 0, errors.New("the brackets do not match")
	case !strings.HasPrefix(host, "[") && strings.ContainsRune(host, ':'):
		return "", 0, errors.New("an IPv6 address must stand in brackets")
	}
	return host, uint16(n), nil
}

// canonical checks a host name or IPv4 address and returns its canonical spelling.
func canonical(host string) (string, netip.Addr, error) {
	for _, r := range host {
		if !defence.Off(defence.EgressCharacters) && (r <= ' ' || r == 0x7f || strings.ContainsRune(`/\@?#%&"'<>()[]{}|^,;:*+=!$`+"`", r)) {
			return "", netip.Addr{}, fmt.Errorf("the host has the character %q", r)
		}
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if !defence.Off(defence.EgressNames) {
		ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(host, "."))
		if err != nil || ascii == "" {
			return "", netip.Addr{}, errors.New("the host is not a valid name")
		}
		name = strings.ToLower(ascii)
		// IDNA maps some inputs to names that are not valid themselves, or that it would map again.
		if again, err := idna.Lookup.ToASCII(name); err != nil || again != name || !utf8.ValidString(host) {
			return "", netip.Addr{}, errors.New("the host is not a valid name")
		}
	}
	if len(name) > 253 {
		return "", netip.Addr{}, errors.New("the host is too long")
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 {
			return "", netip.Addr{}, errors.New("the host has an empty or too long label")
		}
	}
	// As in browsers, a last label that is a number makes the host an address, of which only the
	// plain spelling is accepted: some programs read 0x7f.1, 0177.0.0.1 and 2130706433 as loopback,
	// and others as names.
	if last := labels[len(labels)-1]; numeric(last) {
		ip, err := netip.ParseAddr(name)
		if defence.Off(defence.EgressSpelling) && err != nil {
			return name, netip.Addr{}, nil
		}
		if err != nil || !ip.Is4() {
			return "", netip.Addr{}, errors.New("the address is not written as four decimal numbers")
		}
		return ip.String(), ip, nil
	}
	return name, netip.Addr{}, nil
}

func numeric(label string) bool {
	if strings.HasPrefix(label, "0x") {
		return true
	}
	for _, r := range label {
		if r < '0' || r > '9' {
			return false
		}
	}
	return true
}
