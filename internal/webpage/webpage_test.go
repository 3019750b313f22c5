package webpage_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/webpage"
)

// TestOneSpelling: addresses that lead to one page are one, and those that don't are none.
func TestOneSpelling(t *testing.T) {
	for in, want := range map[string]string{
		"https://A.example":                              "https://a.example/",
		"http://a.example:80/x#there":                    "https://a.example/x",
		"HTTPS://a.example.:443/x?b=1&a=2":               "https://a.example/x?b=1&a=2",
		"https://a.example:8443/ä b":                     "https://a.example:8443/%C3%A4%20b",
		"https://a.example/?q=ä":                         "https://a.example/?q=%C3%A4",
		"https://[2001:DB8::1]/":                         "https://[2001:db8::1]/",
		"https://bücher.example/":                        "https://xn--bcher-kva.example/",
		"https://a.example/%2e%2e/x":                     "https://a.example/%2e%2e/x",
		"ftp://a.example/":                               "",
		"file:///etc/passwd":                             "",
		"https://u:p@a.example/":                         "",
		"https://2130706433/":                            "",
		"https://a.example\x00.b.example/":               "",
		"https:///x":                                     "",
		"javascript:alert(1)":                            "",
		"https://a.example/" + strings.Repeat("x", 3000): "",
		"": "",
	} {
		got, err := webpage.Parse(in)
		if got.URL != want || (err == nil) != (want != "") {
			t.Errorf("%.60q is %q (%v), want %q", in, got.URL, err, want)
		}
		if err == nil {
			if again, err := webpage.Parse(got.URL); err != nil || again != got {
				t.Errorf("%q is read again as %q: %v", got.URL, again.URL, err)
			}
		}
	}
}

// TestNamed: what people write as an address names one, whole, and nothing that only begins like it.
func TestNamed(t *testing.T) {
	for text, want := range map[string][]string{
		"Read https://a.example/x, please.":                                             {"https://a.example/x"},
		"(see https://a.example/wiki/Foo_(bar)) and http://B.example.":                  {"https://a.example/wiki/Foo_(bar)", "https://b.example/"},
		"[docs](https://a.example/d) <https://b.example/e>":                             {"https://a.example/d", "https://b.example/e"},
		"www.a.example/docs and (WWW.b.example), not www.c or www.d.e7":                 {"https://www.a.example/docs", "https://www.b.example/"},
		"Fix main.rs and setup.py, see README.md, docs/a.md, a.example and b.example/x": nil,
		"https://web.example/http://a.example/":                                         {"https://web.example/http://a.example/"},
		"mailto:me@a.example ftp://a.example":                                           nil,
		"no address":                                                                    nil,
	} {
		if got := webpage.Named(text); !slices.Equal(got, want) {
			t.Errorf("%q names %q, want %q", text, got, want)
		}
	}
	if n := len(webpage.Named(strings.Repeat("https://a.example/ ", 5000))); n > 500 {
		t.Errorf("%d addresses of one text", n)
	}
}

// TestAReadersAnswerIsNotTrusted: what a reader that was taken over says is refused, or plain text.
func TestAReadersAnswerIsNotTrusted(t *testing.T) {
	good := webpage.Page{From: "https://a.example/", Media: "text/html", Status: 200, Text: "text"}
	with := func(change func(*webpage.Page)) []byte {
		p := good
		change(&p)
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, raw := range map[string][]byte{
		"no JSON":        []byte("<html>"),
		"too long":       with(func(p *webpage.Page) { p.Text = strings.Repeat("x", webpage.MaxText+1) }),
		"no address":     with(func(p *webpage.Page) { p.From = "file:///etc/passwd" }),
		"no status":      with(func(p *webpage.Page) { p.Status = 7 }),
		"less than none": with(func(p *webpage.Page) { p.Bytes = -1 }),
		"endless":        []byte(`{"text":"` + strings.Repeat("x", webpage.MaxAnswer) + `"}`),
	} {
		if p, err := webpage.Decode(raw); err == nil {
			t.Errorf("%s: taken as %.200q", name, p.Text)
		}
	}
	p, err := webpage.Decode(with(func(p *webpage.Page) {
		p.Title, p.Text = "one\ntwo\x1b[31m", "a\x1b[31m\u202eb\u200b\U000E0041c\r\n\u2028d"
	}))
	if err != nil || p.Title != "one two[31m" || p.Text != "a[31mbc\n\nd" {
		t.Errorf("%q %q %v", p.Title, p.Text, err)
	}
	if p, err := webpage.Decode(with(func(p *webpage.Page) { p.Redirect = "gopher://x/" })); err != nil || p.Failed == "" || p.Text != "" {
		t.Errorf("%+v %v", p, err)
	}
}
