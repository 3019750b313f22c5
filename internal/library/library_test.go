package library_test

import (
	"strings"
	"testing"
	"testing/quick"
	"unicode"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/library"
)

const text = "# Milk\n\nCheese is made   of\n\tmilk, always.\nIt is *good* for you.\n"

func TestFind(t *testing.T) {
	for _, c := range []struct {
		excerpt, words string
		line           int
	}{
		{"Cheese is made of milk", "Cheese is made of milk", 3},
		{"  milk,\nalways. It  is", "milk, always. It is", 4},
		{"It is *good* for you.", "It is *good* for you.", 5},
		{"It is good for you.", "", 0},    // not to the letter
		{"cheese is made of milk", "", 0}, // nor to its case
		{"ilk, alw", "", 0},               // too few letters
		{"made of milk, never.", "", 0},   // made up
		{"", "", 0},
	} {
		words, line, ok := library.Find(text, c.excerpt)
		if ok != (c.line > 0) || ok && (words != c.words || line != c.line) {
			t.Errorf("%q: %q, line %d, %v", c.excerpt, words, line, ok)
		}
	}
}

// TestFindFindsWhatIsThere: any part of any text is found in it, however its white space is written, and in its line.
func TestFindFindsWhatIsThere(t *testing.T) {
	there := func(before, words, after string) bool {
		for _, s := range []*string{&before, &words, &after} {
			*s = strings.ToValidUTF8(*s, "")
		}
		text := before + "\n" + words + "\n" + after
		flat, line, ok := library.Find(text, "\t"+strings.Join(strings.Fields(words), "\r\n  "))
		letters := 0
		for _, r := range words {
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				letters++
			}
		}
		if letters < library.MinExcerpt {
			return !ok
		}
		return ok && line >= 1 && line <= 1+strings.Count(text, "\n") && strings.Contains(strings.Join(strings.Fields(text), " "), flat)
	}
	if err := quick.Check(there, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

var cited = contract.Citation{Label: "c0123456789", Address: "https://cheese.example/a?b=<c>", Title: "On *cheese* [1]", Claim: "Cheese is milk.", Excerpt: "Cheese is `made` of <b>milk</b>", Line: 3, Support: contract.SupportYes}

// TestWhatASourceSaysStaysWords: nothing of a source is a link, an element or code in the document that quotes it.
func TestWhatASourceSaysStaysWords(t *testing.T) {
	want := "[^c0123456789]: “Cheese is \\`made\\` of \\<b\\>milk\\</b\\>” — [On \\*cheese\\* \\[1\\]](<https://cheese.example/a?b=%3Cc%3E>), line 3. Says what is claimed."
	if got := library.Definition(cited); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	of := cited
	of.Support, of.Address, of.Title = contract.SupportNo, "workspace/a (b)/ü.md", ""
	if got := library.Definition(of); !strings.Contains(got, "](</workspace/a%20%28b%29/%C3%BC.md>), line 3. **Does not say") && !strings.Contains(got, "](</workspace/a%20(b)/%C3%BC.md>), line 3. **Does not say") {
		t.Error(got)
	}
}

func TestCheck(t *testing.T) {
	known := map[string]contract.Citation{cited.Label: cited}
	line := library.Definition(cited)
	for name, c := range map[string]struct{ body, says string }{
		"as it should be":         {"# A\n\nMilk.[^c0123456789]\n\n" + line + "\n", ""},
		"invented":                {"Milk.[^c9999999999]\n", "[^c9999999999] is no citation"},
		"a footnote of its own":   {"Milk.[^1]\n\n[^1]: surely\n", "[^1] is no citation"},
		"no label":                {"Milk.[^{{milk}}]\n", "[^{{milk}}] is no citation"},
		"not defined":             {"Milk.[^c0123456789]\n", "is not defined. Add this line"},
		"other words":             {"Milk.[^c0123456789]\n\n" + strings.Replace(line, "made", "not made", 1) + "\n", "not defined as it was recorded"},
		"a better judgement":      {"Milk.[^c0123456789]\n\n" + strings.Replace(line, "Says what is claimed.", "True.", 1) + "\n", "not defined as it was recorded"},
		"defined twice":           {"Milk.[^c0123456789]\n\n" + line + "\n" + line + "\n", "defined twice"},
		"defined for nothing":     {"Milk.\n\n" + line + "\n", "nothing refers to it"},
		"another, indented":       {"Milk.[^c0123456789]\n\n  [^c0123456789]: “All of it is true.”\n\n" + line + "\n", "is defined in a list or a quotation, or behind blanks"},
		"another, quoted":         {"Milk.[^c0123456789]\n\n> [^c0123456789]: true\n\n" + line + "\n", "is defined in a list or a quotation, or behind blanks"},
		"another, in a list":      {"Milk.[^c0123456789]\n\n1. [^c0123456789]: true\n\n" + line + "\n", "is defined in a list or a quotation, or behind blanks"},
		"it alone, indented":      {"Milk.[^c0123456789]\n\n  " + line + "\n", "is defined in a list or a quotation, or behind blanks"},
		"more, behind it":         {"Milk.[^c0123456789]\n\n" + line + "\nAnd all of it is true.\n", "has more in its definition than its line"},
		"more, a paragraph later": {"Milk.[^c0123456789]\n\n" + line + "\n\n    And all of it is true.\n", "has more in its definition than its line"},
		"text, a paragraph later": {"Milk.[^c0123456789]\n\n" + line + "\n\nWords.\n", ""},
		"text behind a heading":   {"Milk.[^c0123456789]\n\n" + line + "\n\n# More\n\nWords.\n", ""},
		"in code, so not a claim": {"Milk.[^c0123456789]\n\n```\nx[^nope]\n```\n\n" + line + "\n", ""},
		"nothing cited":           {"Milk.\n", "cites nothing, though 1 claims were found"},
	} {
		got := strings.Join(library.Check(c.body, known, []contract.Citation{cited}), "\n")
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
	if got := library.Check("Words.\n", known, nil); len(got) != 0 {
		t.Errorf("nothing was found, and so nothing is cited: %q", got)
	}
}

func TestSummaryPath(t *testing.T) {
	seen := map[string]string{}
	for _, what := range []string{"https://example.com/a/b.html?q=1", "https://example.com/a/b.html?q=2", "workspace/Notes über.md", "…", strings.Repeat("long/", 200) + "x.md", "workspace/notes-ber-md"} {
		p := library.SummaryPath(what)
		if contract.ValidPath("path", p) != nil || !strings.HasPrefix(p, "artifacts/summaries/") || !strings.HasSuffix(p, ".md") || len(p) > 100 || seen[p] != "" || p != library.SummaryPath(what) {
			t.Errorf("%q: %q (of %q)", what, p, seen[p])
		}
		seen[p] = what
	}
	for _, same := range [][2]string{{"workspace/x.md", "./workspace//x.md"}, {"workspace/x.md", "/computer/workspace/x.md"}, {"https://a.example/b", "http://a.example/b"}} {
		if library.SummaryPath(same[0]) != library.SummaryPath(same[1]) {
			t.Errorf("%q and %q have two documents", same[0], same[1])
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("Milk.[^c0123456789]\n\n" + library.Definition(cited) + "\n")
	f.Fuzz(func(t *testing.T, body string) {
		problems := library.Check(body, map[string]contract.Citation{cited.Label: cited}, nil)
		for _, label := range library.Cited(body) {
			if label != cited.Label && len(problems) == 0 {
				t.Errorf("%q cites %q, and nobody says so", body, label)
			}
		}
	})
}
