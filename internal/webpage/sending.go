package webpage

import (
	"errors"
	"fmt"
	"mime"
	"net/textproto"
	"slices"
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
)

// Bounds of a request that changes something.
const (
	MaxSent        = 64 << 10 // bytes of its body
	MaxHeaders     = 16
	MaxHeaderBytes = 4 << 10 // of all names and values
	MaxHeaderName  = 64
	MaxHeaderValue = 1000
	MaxContentType = 200
	MaxSendKey     = 255 // characters of an idempotency key
)

// Header is one field of a request's head.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Sending is a request that changes something outside, as it leaves.
type Sending struct {
	Method      string   `json:"method"`
	URL         string   `json:"url"`
	Headers     []Header `json:"headers,omitempty"`
	ContentType string   `json:"content_type,omitempty"`
	Body        string   `json:"body,omitempty"`
	Key         string   `json:"idempotency_key,omitempty"`
}

// refused are the fields that no task sets, by their canonical names, each with the reason. Of a name that ends in "-" they
// are all that begin so.
var refused = map[string]string{
	"Content-Length": framed, "Transfer-Encoding": framed, "Connection": framed, "Keep-Alive": framed, "Te": framed, "Trailer": framed, "Upgrade": framed,
	"Expect": framed, "Http2-Settings": framed, "Accept-Encoding": framed,
	"Content-Type": argued, "Idempotency-Key": argued, "User-Agent": from,
	"X-Http-": another, "X-Rewrite-": another,
	"Origin": from, "Referer": from, "Via": from, "Sec-": from, "Cf-": from, "X-Envoy-": from, "X-Appengine-": from,
}

// refusedWords are what no name of a field has in it, wherever in it and with or without a "-" within: each service has fields of
// its own that sign in, and a list of them would never be whole.
var refusedWords = []struct {
	why   string
	words []string
}{
	{framed, []string{"proxy"}},
	{another, []string{"host", "method", "original", "rewrite", "override", "destination"}},
	{from, []string{"forward", "clientip", "realip", "trueclient", "remote", "originating"}},
	{signed, []string{"key", "token", "auth", "secret", "session", "credential", "password", "passwd", "passphrase", "pwd", "cookie", "signature", "bearer", "jwt", "csrf", "xsrf",
		"login", "user", "principal", "identity", "impersonate", "cert", "hmac", "dpop", "passcode", "assertion", "saml", "oidc"}},
}

// refusedWhole are words that others have in them: they stand in a name between its "-".
var refusedWhole = map[string]string{
	"ip": from, "sign": signed, "sig": signed, "mac": signed, "otp": signed, "pin": signed, "pass": signed, "sid": signed, "role": signed, "roles": signed,
}

// Why a field is refused.
const (
	framed  = "it is about the connection, which is not the task's"
	argued  = "it has an argument of its own"
	signed  = "it would sign in, and what a task knows of passwords and tokens is somebody else's"
	another = "it would make another request of it than the one that is shown"
	from    = "it says where a request comes from, which is the host's to say"
)

// Spell checks a request and brings it into its one spelling. Two requests are the same if their spellings are.
func (s Sending) Spell() (Sending, Address, error) {
	if !slices.Contains(contract.RequestMethods, s.Method) {
		return s, Address{}, fmt.Errorf("the method is one of %s", strings.Join(contract.RequestMethods, ", "))
	}
	if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(s.URL)), "https://") {
		return s, Address{}, errors.New("requests are sent to addresses that begin with https:// alone")
	}
	at, err := Parse(s.URL)
	if err != nil {
		return s, at, err
	}
	s.URL = at.URL
	if s.Headers, err = spellHeaders(s.Headers); err != nil {
		return s, at, err
	}
	switch {
	case len(s.Body) > MaxSent:
		return s, at, fmt.Errorf("the body has %d bytes; at most %d are sent", len(s.Body), MaxSent)
	case !utf8.ValidString(s.Body):
		return s, at, errors.New("the body is no text")
	case (s.Body == "") != (s.ContentType == ""):
		return s, at, errors.New("a body has a content_type, such as application/json, and without one there is none")
	}
	if s.ContentType != "" {
		kind, parameters, err := mime.ParseMediaType(s.ContentType)
		if s.ContentType = mime.FormatMediaType(kind, parameters); err != nil || !strings.Contains(s.ContentType, "/") || len(s.ContentType) > MaxContentType || !visible(s.ContentType, " ") {
			return s, at, errors.New("the content_type is none, such as application/json")
		}
	}
	if len(s.Key) > MaxSendKey || !visible(s.Key, "") {
		return s, at, fmt.Errorf("the idempotency_key has at most %d letters, digits and signs, or is left out: then one is made", MaxSendKey)
	}
	return s, at, nil
}

// spellHeaders checks the fields of a request's head, and sorts them.
func spellHeaders(list []Header) ([]Header, error) {
	if len(list) > MaxHeaders {
		return nil, fmt.Errorf("there are %d headers; at most %d are sent", len(list), MaxHeaders)
	}
	var out []Header
	size := 0
	for _, h := range list {
		name := textproto.CanonicalMIMEHeaderKey(h.Name)
		size += len(name) + len(h.Value)
		switch {
		case name == "" || len(name) > MaxHeaderName || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") != "":
			return nil, fmt.Errorf("a header's name has at most %d letters, digits and -", MaxHeaderName)
		case len(h.Value) > MaxHeaderValue || strings.TrimSpace(h.Value) != h.Value || h.Value == "" || !visible(h.Value, " ") && !defence.Off(defence.RequestLines):
			return nil, fmt.Errorf("the value of the header %s is one line of at most %d letters, digits and signs", name, MaxHeaderValue)
		case slices.ContainsFunc(out, func(o Header) bool { return o.Name == name }):
			return nil, fmt.Errorf("the header %s stands there twice", name)
		}
		if why := refusal(name); why != "" && !defence.Off(defence.RequestHeaders) {
			return nil, fmt.Errorf("the header %s is not sent: %s", name, why)
		}
		out = append(out, Header{Name: name, Value: h.Value})
	}
	if size > MaxHeaderBytes {
		return nil, fmt.Errorf("the headers have %d bytes; at most %d are sent", size, MaxHeaderBytes)
	}
	slices.SortFunc(out, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// refusal is why no task sets a field, "" if one may.
func refusal(name string) string {
	if why := refused[name]; why != "" {
		return why
	}
	for beginning, why := range refused {
		if strings.HasSuffix(beginning, "-") && strings.HasPrefix(name, beginning) {
			return why
		}
	}
	lower := strings.ToLower(name)
	joined := strings.ReplaceAll(lower, "-", "")
	for _, r := range refusedWords {
		if slices.ContainsFunc(r.words, func(w string) bool { return strings.Contains(joined, w) }) {
			return r.why
		}
	}
	for word := range strings.SplitSeq(lower, "-") {
		if why := refusedWhole[word]; why != "" {
			return why
		}
	}
	return ""
}

// visible reports whether a text is of printable ASCII, and of blanks only those that are named.
func visible(s, blanks string) bool {
	for i := range len(s) {
		if c := s[i]; (c <= ' ' || c >= 0x7F) && strings.IndexByte(blanks, c) < 0 {
			return false
		}
	}
	return true
}

// Fields are the fields of its head that the task chose, as they leave.
func (s Sending) Fields() []Header {
	out := slices.Clone(s.Headers)
	if s.ContentType != "" {
		out = append(out, Header{"Content-Type", s.ContentType})
	}
	if s.Key != "" {
		out = append(out, Header{"Idempotency-Key", s.Key})
	}
	return out
}
