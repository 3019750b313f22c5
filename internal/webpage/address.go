package webpage

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/egress"
)

// Address is the address of a page in its one spelling: https, the host as the egress proxy spells it, no
// port that is the usual one, and no fragment. Two addresses are the same page's if their URLs are equal.
type Address struct {
	URL  string
	Host string
	Port int
}

// Target is the one host and port at which the page is.
func (a Address) Target() string { return contract.Act{Host: a.Host, Port: a.Port}.Target() }

// Parse reads an address. Plain HTTP can't be checked and is not let out of boxes, so http stands for https.
func Parse(raw string) (Address, error) {
	if len(raw) > contract.MaxURL {
		return Address{}, fmt.Errorf("the address has %d bytes; at most %d are read", len(raw), contract.MaxURL)
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return Address{}, errors.New("it is not an address")
	}
	port := u.Port()
	switch strings.ToLower(u.Scheme) {
	case "https":
	case "http":
		if port == "80" {
			port = ""
		}
	default:
		return Address{}, errors.New("only addresses that begin with https:// or http:// are read")
	}
	if u.User != nil {
		return Address{}, errors.New("addresses with a user name or password are not read")
	}
	if port == "" {
		port = "443"
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	t, err := egress.ParseTarget(host + ":" + port)
	if err != nil {
		return Address{}, err
	}
	a := Address{Host: t.Host, Port: int(t.Port)}
	at := a.Target()
	if t.Port == 443 {
		at = strings.TrimSuffix(at, ":443")
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	a.URL = "https://" + at + printable(path)
	if u.RawQuery != "" || u.ForceQuery {
		a.URL += "?" + printable(u.RawQuery)
	}
	if len(a.URL) > contract.MaxURL {
		return Address{}, fmt.Errorf("the address has %d bytes; at most %d are read", len(a.URL), contract.MaxURL)
	}
	return a, nil
}

// Refer is the address that a page at a names, such as by a link or a redirect.
func (a Address) Refer(to string) (Address, error) {
	base, err := url.Parse(a.URL)
	if err != nil {
		return Address{}, err
	}
	u, err := base.Parse(to)
	if err != nil {
		return Address{}, errors.New("it is not an address")
	}
	return Parse(u.String())
}

// printable writes what is not printable ASCII in hex, as browsers do.
func printable(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7F || c == '"' || c == '<' || c == '>' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// maxNamed bounds how many addresses of one text count.
const maxNamed = 500

// Named returns the URLs of the addresses that a text names: each word that begins with http:// or https://,
// and each that is the name of a host that begins with www., with or without a path. Without either, README.md and main.rs
// would be addresses.
func Named(text string) []string {
	var out []string
	words := strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || strings.ContainsRune("<>\"`|\u00a0\u2028\u2029", r) })
	for _, w := range words {
		if len(out) >= maxNamed {
			break
		}
		if at := begins(w); at >= 0 {
			w = w[at:] // behind an opening bracket, or the text of a Markdown link
		} else if w = strings.Trim(w, "()[]{}'*_.,;:!?"); bare(w) {
			w = "https://" + w
		} else {
			continue
		}
		if a, err := Parse(ended(w)); err == nil {
			out = append(out, a.URL)
		}
	}
	return out
}

// begins is where in a word an address with a scheme begins, -1 for nowhere.
func begins(w string) int {
	lower := strings.ToLower(w)
	first := -1
	for _, scheme := range []string{"https://", "http://"} {
		if at := strings.Index(lower, scheme); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// ended is an address without the punctuation of the sentence that it stands in.
func ended(w string) string {
	for w != "" {
		last := w[len(w)-1]
		open := map[byte]string{')': "(", ']': "[", '}': "{"}[last]
		switch {
		case strings.IndexByte(".,;:!?'*_", last) >= 0:
		case open != "" && strings.Count(w, open) < strings.Count(w, string(last)):
		default:
			return w
		}
		w = w[:len(w)-1]
	}
	return w
}

// bare reports whether a word is a host name that begins with www., and perhaps a path.
func bare(w string) bool {
	host, _, _ := strings.Cut(w, "/")
	labels := strings.Split(strings.ToLower(host), ".")
	if len(labels) < 3 || labels[0] != "www" || len(host) > 253 {
		return false
	}
	for i, l := range labels {
		if l == "" || len(l) > 63 || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
		if i == len(labels)-1 && (len(l) < 2 || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz") != "") {
			return false
		}
	}
	return true
}
