package webpage_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/webpage"
)

var sends = webpage.Sending{Method: "POST", URL: "https://A.example:443/x?b=1#there", Headers: []webpage.Header{{Name: "x-b", Value: "2"}, {Name: "accept", Value: "text/plain"}},
	ContentType: "Application/JSON;Charset=utf-8", Body: "{}", Key: "k-1"}

// TestOneSpellingOfARequest: what is spelled otherwise and would be the same request is the same.
func TestOneSpellingOfARequest(t *testing.T) {
	got, at, err := sends.Spell()
	want := webpage.Sending{Method: "POST", URL: "https://a.example/x?b=1", Headers: []webpage.Header{{Name: "Accept", Value: "text/plain"}, {Name: "X-B", Value: "2"}},
		ContentType: "application/json; charset=utf-8", Body: "{}", Key: "k-1"}
	if err != nil || !reflect.DeepEqual(got, want) || at.Host != "a.example" || at.Port != 443 {
		t.Errorf("%+v at %+v: %v", got, at, err)
	}
	if again, _, err := got.Spell(); err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("it is spelled again as %+v: %v", again, err)
	}
	var fields []string
	for _, f := range got.Fields() {
		fields = append(fields, f.Name+": "+f.Value)
	}
	if !slices.Equal(fields, []string{"Accept: text/plain", "X-B: 2", "Content-Type: application/json; charset=utf-8", "Idempotency-Key: k-1"}) {
		t.Errorf("%q", fields)
	}
}

// TestWhatNoRequestMayBe: each is refused by itself.
func TestWhatNoRequestMayBe(t *testing.T) {
	header := func(name, value string) func(*webpage.Sending) {
		return func(s *webpage.Sending) { s.Headers = []webpage.Header{{Name: name, Value: value}} }
	}
	for name, change := range map[string]func(*webpage.Sending){
		"another method":          func(s *webpage.Sending) { s.Method = "GET" },
		"a method of two words":   func(s *webpage.Sending) { s.Method = "POST /x HTTP/1.1\r\nHost: b\r\n\r\nPOST" },
		"plain HTTP":              func(s *webpage.Sending) { s.URL = "http://a.example/" },
		"a password":              func(s *webpage.Sending) { s.URL = "https://u:p@a.example/" },
		"no host":                 func(s *webpage.Sending) { s.URL = "https:///x" },
		"a body without its type": func(s *webpage.Sending) { s.ContentType = "" },
		"a type without a body":   func(s *webpage.Sending) { s.Body = "" },
		"a type that is none":     func(s *webpage.Sending) { s.ContentType = "json" },
		"a type of two lines":     func(s *webpage.Sending) { s.ContentType = "text/plain\r\nHost: b" },
		"a long body":             func(s *webpage.Sending) { s.Body = strings.Repeat("x", webpage.MaxSent+1) },
		"a body of no text":       func(s *webpage.Sending) { s.Body = "\xff" },
		"a key of two lines":      func(s *webpage.Sending) { s.Key = "a\r\nHost: b" },
		"a long key":              func(s *webpage.Sending) { s.Key = strings.Repeat("k", webpage.MaxSendKey+1) },
		"a header twice": func(s *webpage.Sending) {
			s.Headers = []webpage.Header{{Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}}
		},
		"many headers": func(s *webpage.Sending) {
			for i := range webpage.MaxHeaders + 1 {
				s.Headers = append(s.Headers, webpage.Header{Name: "X-" + string(rune('A'+i)) + "z", Value: "1"})
			}
		},
		"long headers": func(s *webpage.Sending) {
			for _, n := range []string{"A", "B", "C", "D", "E"} {
				s.Headers = append(s.Headers, webpage.Header{Name: n, Value: strings.Repeat("x", 900)})
			}
		},
		"a header's name with a colon": header("X-A: b\r\nHost", "x"), "a header without a name": header("", "x"), "a header without a value": header("X-A", ""),
		"a header with a NUL": header("X-A", "a\x00b"), "a header beyond ASCII": header("X-A", "ä"), "a long value": header("X-A", strings.Repeat("x", webpage.MaxHeaderValue+1)),
	} {
		s := sends
		s.Headers = nil
		change(&s)
		if _, _, err := s.Spell(); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for _, value := range []string{"a\r\nX-Evil: b", "a\nb", "a\rb"} {
		s := sends
		s.Headers = []webpage.Header{{Name: "X-A", Value: value}}
		if _, _, err := s.Spell(); err == nil {
			t.Errorf("a header of two lines is taken: %q", value)
		}
	}
	for _, name := range []string{"Host", "content-length", "Transfer-Encoding", "connection", "TE", "Upgrade", "Expect", "Proxy-Authorization", "proxy-connection", "Authorization", "cookie", "X-HTTP-Method-Override",
		"Origin", "Referer", "X-Forwarded-For", "Sec-Fetch-Site", "User-Agent", "Content-Type", "Idempotency-Key", "Accept-Encoding"} {
		s := sends
		s.Headers = []webpage.Header{{Name: name, Value: "x"}}
		if _, _, err := s.Spell(); err == nil || !strings.Contains(err.Error(), "is not sent") {
			t.Errorf("a task sets the header %s: %v", name, err)
		}
	}
}

// TestHeadersAreRefusedByTheirWords: what a service signs in with under a name of its own, what makes another request of it, and what
// says where it comes from are refused by the words of their names; what is none of them is sent.
func TestHeadersAreRefusedByTheirWords(t *testing.T) {
	takes := func(name string) error {
		s := sends
		s.Headers = []webpage.Header{{Name: name, Value: "x"}}
		_, _, err := s.Spell()
		return err
	}
	for why, names := range map[string][]string{
		"would sign in": {"Private-Token", "X-Api-Key", "Api-Key", "ApiKey", "X-Goog-Api-Key", "X-Auth-Token", "X-Auth-Key", "X-Access-Token", "X-Amz-Security-Token", "X-Vault-Token", "X-CSRF-Token", "X-XSRF-Id", "Job-Token",
			"X-Custom-Authorization", "Www-Authenticate", "X-Session-Id", "X-Client-Secret", "X-Credential", "X-Password", "Set-Cookie", "X-Hub-Signature-256", "X-JWT-Assertion", "X-WEBAUTH-USER", "X-User-Id", "Impersonate-Group", "X-Ms-Client-Principal", "X-SSL-Client-Cert", "k-e-y",
			"X-Passphrase", "X-Passwd", "X-Pwd", "X-Bearer", "X-Login", "X-Identity", "X-Principal", "X-Jwt", "X-Csrf", "X-Xsrf", "X-Session", "X-Cert", "X-Impersonate", "X-Signature",
			"X-Sign", "X-Sig", "X-Hmac", "X-MAC", "DPoP", "X-OTP", "X-PIN", "X-Passcode", "X-Pass", "X-SID", "SAML-Response", "OIDC-Claim-Email", "X-Assertion", "X-Roles"},
		"another request": {"Host", "X-Original-URL", "X-Original-Method", "X-Rewrite-URL", "X-Host", "X-HTTP-Method", "X-HTTP-DestinationURL", "X-Method-Override", "X-HTTP-Path-Override", "Destination"},
		"comes from":      {"Forwarded", "X-Forwarded-Host", "X-Forwarded-For", "X-Original-Forwarded-For", "X-Real-IP", "X-Client-IP", "Client-IP", "X-Cluster-Client-IP", "X-Azure-ClientIP", "True-Client-IP", "CF-Connecting-IP", "CF-IPCountry", "X-Originating-IP", "X-Remote-Addr", "X-IP"},
		"the connection":  {"Proxy-Authorization", "X-Proxy-Url"},
	} {
		for _, name := range names {
			// Of a name with two words the one that is found first gives the reason.
			if err := takes(name); err == nil || !strings.Contains(err.Error(), "is not sent: ") || !strings.Contains(err.Error(), why) && !strings.Contains(name, "Forwarded") {
				t.Errorf("a task sets the header %s, which %s: %v", name, why, err)
			}
		}
	}
	for _, name := range []string{"Accept", "Accept-Language", "If-Match", "If-None-Match", "Prefer", "X-Request-Id", "X-Shop", "Stripe-Version", "Notion-Version", "X-GitHub-Api-Version", "OpenAI-Organization", "Content-Language", "Depth", "X-Zip", "X-Description", "X-Ping", "X-Design", "X-Side", "X-Machine"} {
		if err := takes(name); err != nil {
			t.Errorf("a service's own header is refused: %v", err)
		}
	}
}

// TestWhatARequestCameTo: only what is known counts as done or as not made.
func TestWhatARequestCameTo(t *testing.T) {
	for outcome, list := range map[contract.EffectOutcome][]int{
		contract.EffectDone:    {200, 201, 202, 204, 299},
		contract.EffectFailed:  {307, 308, 400, 401, 403, 404, 409, 422, 429, 499},
		contract.EffectUnknown: {0, 100, 101, 199, 300, 301, 302, 303, 304, 408, 500, 502, 503, 504, 599, 600, 999},
	} {
		for _, status := range list {
			if got := (webpage.Answer{Sent: true, Status: status}).Outcome(); got != outcome {
				t.Errorf("status %d is %s, want %s", status, got, outcome)
			}
		}
	}
	if got := (webpage.Answer{}).Outcome(); got != contract.EffectFailed {
		t.Errorf("what was not sent is %s", got)
	}
}

// TestAReadersWordOnARequest: a reader that ends before it is done, or says what can't be, sent it as far as anybody knows.
func TestAReadersWordOnARequest(t *testing.T) {
	for said, want := range map[string]webpage.Answer{
		"":                                 {Sent: true},
		`{"failed":"no way","whole":true}`: {Sent: true}, // its last line has no end: it may have been more
		"{\"failed\":\"no\\u202e way\",\"whole\":true}\n": {Failed: "no way", Whole: true},
		"{\"sent\":true}\n": {Sent: true},
		"{\"sent\":true}\n{\"sent\":true,\"status\":201}\n{\"se":                                                          {Sent: true, Status: 201},
		"{\"sent\":true}\n{\"sent\":true,\"status\":201}\n{\"sent\":true,\"status\":201,\"text\":\"a\",\"whole\":true}\n": {Sent: true, Status: 201, Text: "a", Whole: true},
	} {
		if got, err := webpage.DecodeAnswer([]byte(said)); err != nil || got != want {
			t.Errorf("%q is %+v (%v), want %+v", said, got, err, want)
		}
	}
	text, _ := json.Marshal(strings.Repeat("x", webpage.MaxAnswered+1))
	for _, said := range []string{"no JSON\n", "{\"sent\":true}\n{\"failed\":\"not sent\",\"whole\":true}\n", "{\"status\":200}\n", "{\"sent\":true,\"status\":7}\n",
		"{\"sent\":true,\"status\":200}\n{\"sent\":true,\"status\":404}\n", "{\"whole\":true}\n{\"whole\":true}\n", "{\"sent\":true,\"bytes\":-1}\n", "{\"sent\":true,\"text\":" + string(text) + "}\n"} {
		if got, err := webpage.DecodeAnswer([]byte(said)); err == nil || !got.Sent {
			t.Errorf("%.80q is taken as %+.80v", said, got)
		}
	}
}
