package egress_test

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/egress"
)

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"example.org:443":             "example.org:443",
		"EXAMPLE.Org:443":             "example.org:443",
		"example.org.:443":            "example.org:443",
		"bücher.example:443":          "xn--bcher-kva.example:443",
		"xn--bcher-kva.example:443":   "xn--bcher-kva.example:443",
		"127.0.0.1:80":                "127.0.0.1:80",
		"[::1]:443":                   "[::1]:443",
		"[::FFFF:169.254.169.254]:80": "169.254.169.254:80",
		"[0:0:0:0:0:0:0:1]:1":         "[::1]:1",
		"localhost:8080":              "localhost:8080",
		"a.b-c.example:65535":         "a.b-c.example:65535",
		"1.example.org:443":           "1.example.org:443",
	} {
		got, err := egress.ParseTarget(in)
		if err != nil || got.String() != want {
			t.Errorf("%q: got %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", ":443", "example.org", "example.org:", "example.org:0", "example.org:65536", "example.org:+443", "example.org:0443", "example.org:443 ", "example.org:44 3",
		"evil\x00.allowed.example:443", "allowed.example\x00:443", "allowed.example%00:443", " allowed.example:443", "allowed.example\t:443", "allowed.example\r\nX:443",
		"user@allowed.example:443", "allowed.example/:443", "allowed.example#:443", "allowed.example?:443", "allowed.example\\:443", "allowed..example:443", ".allowed.example:443",
		"allowed.example..:443", ".:443", "*.allowed.example:443",
		"2130706433:80", "0177.0.0.1:80", "0x7f.0.0.1:80", "0x7f000001:80", "127.1:80", "127.0.0.01:80", "256.1.1.1:80", "1.2.3.4.5:80", "example.0x7f:80",
		"::1:443", "[::1:443", "::1]:443", "[fe80::1%eth0]:443", "[127.0.0.1]:443", "[]:443", "[example.org]:443",
		"a_b.example:443", "example.org\u3002:443", "-a.example:443", "xn--a.example:443", "allo\u00adwed.example\uFFFD:443",
		strings.Repeat("a", 64) + ".example:443", strings.Repeat("a.", 140) + "example:443",
	} {
		if got, err := egress.ParseTarget(in); err == nil {
			t.Errorf("%q was taken for %q", in, got)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"example.org:443", "[::1]:80", "evil\x00.example:443", "0x7f.1:80", "bücher.example.:1", "[::ffff:1.2.3.4]:5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := egress.ParseTarget(s)
		if err != nil {
			return
		}
		again, err := egress.ParseTarget(got.String())
		if err != nil || again != got {
			t.Fatalf("%q → %q → %q, %v", s, got, again, err)
		}
		for _, r := range got.Host {
			if r <= ' ' || r >= 0x7f || r >= 'A' && r <= 'Z' {
				t.Fatalf("%q gave the host %q", s, got.Host)
			}
		}
		if ip, err := netip.ParseAddr(got.Host); (err == nil) != got.IP.IsValid() || err == nil && (ip != got.IP || ip.Is4In6()) {
			t.Fatalf("%q gave the host %q and the address %v", s, got.Host, got.IP)
		}
	})
}

func target(t testing.TB, s string) egress.Target {
	t.Helper()
	got, err := egress.ParseTarget(s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func rules(t testing.TB, texts ...string) []egress.Rule {
	t.Helper()
	got, err := egress.ParseRules(texts)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRules(t *testing.T) {
	p := egress.Policy{Rules: rules(t, "allowed.example:443", "*.suffix.example:443", "tcp://git.example:22", "Bücher.example:443")}
	for in, want := range map[string]string{
		"allowed.example:443":       "allowed.example:443",
		"ALLOWED.example.:443":      "allowed.example:443",
		"a.suffix.example:443":      "*.suffix.example:443",
		"a.b.suffix.example:443":    "*.suffix.example:443",
		"git.example:22":            "tcp://git.example:22",
		"xn--bcher-kva.example:443": "xn--bcher-kva.example:443",
		"allowed.example:80":        "",
		"allowed.example:8443":      "",
		"x.allowed.example:443":     "",
		"evilallowed.example:443":   "",
		"suffix.example:443":        "",
		"evilsuffix.example:443":    "",
		"a.suffix.example.evil:443": "",
		"a.suffix.example:22":       "",
		"git.example:443":           "",
		"93.184.216.34:443":         "",
	} {
		rule, ok := p.Allows(target(t, in))
		if ok != (want != "") || ok && rule.String() != want {
			t.Errorf("%s: %v, %q; want %q", in, ok, rule, want)
		}
	}
	if _, ok := (egress.Policy{}).Allows(target(t, "allowed.example:443")); ok {
		t.Error("the zero policy allows something")
	}
	for _, bad := range []string{"", "allowed.example", "*:443", "*.:443", "*.com:443", "*.1.2.3.4:443", "a.*.example:443", "https://allowed.example:443", "*.*.example:443", "allowed.example:*", "udp://a.example:1"} {
		if r, err := egress.ParseRule(bad); err == nil {
			t.Errorf("%q was taken as %q", bad, r)
		}
	}
}

func TestRulesReadBack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.SampledFrom([]string{"", "*.", "tcp://", "tcp://*."}).Draw(r, "kind") +
			rapid.StringMatching(`[a-z]{1,8}(-[a-z0-9]{1,4})?\.[a-z]{2,6}`).Draw(r, "host") + ":" + rapid.StringMatching(`[1-9][0-9]{0,3}`).Draw(r, "port")
		rule, err := egress.ParseRule(text)
		if err != nil || rule.String() != text {
			r.Fatalf("%q: %q, %v", text, rule, err)
		}
	})
}

func TestRemotes(t *testing.T) {
	for in, want := range map[string]string{
		"https://git.example/a/b.git":         "git.example:443",
		"https://u:p@git.example:8443/a":      "git.example:8443",
		"git@git.example:a/b.git":             "tcp://git.example:22",
		"ssh://git@git.example:2222/a":        "tcp://git.example:2222",
		"ssh://git.example/a":                 "tcp://git.example:22",
		"git://git.example/a":                 "tcp://git.example:9418",
		"http://git.example/a":                "",
		"/srv/git/a":                          "",
		"../a":                                "",
		"file:///srv/a":                       "",
		"ext::sh -c touch% /tmp/pwned":        "",
		"-oProxyCommand=evil:x":               "",
		"https://evil\x00.example/":           "",
		"https://":                            "",
		"https://[::ffff:127.0.0.1]:443/repo": "127.0.0.1:443",
	} {
		rule, err := egress.RemoteRule(in)
		if (err == nil) != (want != "") || err == nil && rule.String() != want {
			t.Errorf("%q: %q, %v; want %q", in, rule, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "p@") {
			t.Errorf("the error repeats a password: %v", err)
		}
	}
}

func TestKindsOfPolicy(t *testing.T) {
	src := testSources(t, nil)
	for _, c := range []struct {
		spec contract.EgressSpec
		want string
	}{
		{contract.EgressSpec{Profile: contract.EgressNone}, ""},
		{contract.EgressSpec{Profile: contract.EgressDefault}, "extra.example:443 git.example:443 registry.example:443"},
		{contract.EgressSpec{Profile: contract.EgressCustom, Allow: []string{"*.more.example:443", "git.example:443"}}, "git.example:443"},
	} {
		p := src.Policy(t.Context(), c.spec)
		var got []string
		for _, r := range p.Rules {
			got = append(got, r.String())
		}
		if p.Err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %q, %v", c.spec, got, p.Err)
		}
	}
	for _, spec := range []contract.EgressSpec{{}, {Profile: "all"}, {Profile: contract.EgressCustom, Allow: []string{"*:443"}}, {Profile: contract.EgressDefault, Allow: []string{"a.example:443"}}} {
		if p := src.Policy(t.Context(), spec); p.Err == nil {
			t.Errorf("%+v gave %v", spec, p.Rules)
		}
	}
}
