package library_test

import (
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/library"
)

// TestNothingIsDefinedBesides: what a renderer takes for a footnote or its words, and is not what was recorded, is a problem.
func TestNothingIsDefinedBesides(t *testing.T) {
	known := map[string]contract.Citation{cited.Label: cited}
	line := library.Definition(cited)
	begin := "Milk.[^c0123456789]\n\n"
	for name, body := range map[string]string{
		"indented":                begin + "   [^c0123456789]: false\n\n" + line + "\n",
		"in a list":               begin + "- [^c0123456789]: false\n\n" + line + "\n",
		"in a numbered list":      begin + "1. [^c0123456789]: false\n\n" + line + "\n",
		"in a quotation":          begin + "> [^c0123456789]: false\n\n" + line + "\n",
		"by carriage returns":     "Milk.[^c0123456789]\r\r[^c0123456789]: false\r\r" + line + "\n",
		"more words":              begin + line + "\nNASA says so, too.\n",
		"more indented words":     begin + line + "\n\n    NASA says so, too.\n",
		"words behind a tab":      begin + line + "\n\n\tNASA says so, too.\n",
		"a long label":            begin + "Moon.[^" + strings.Repeat("m", 65) + "]\n\n" + line + "\n",
		"a span that is no fence": begin + line + "\n\n```so``` it is\n\nMoon.[^1]\n\n[^1]: false\n",
		"an indented fence":       begin + line + "\n\n    ```\n\nMoon.[^1]\n\n[^1]: false\n",
		"a fence in a list":       begin + line + "\n\n- ```\n  x\n  ```\n\nMoon.[^1]\n\n[^1]: false\n",
		"a list that ends it":     begin + line + "\n\n- x\n  ```\nMoon.[^1]\n\n[^1]: false\n",
		"a fence in HTML":         begin + line + "\n\n<div>\n```\n</div>\n\nMoon.[^1]\n\n[^1]: false\n",
		"a fence in a comment":    begin + line + "\n\n<!--\n```\n\n-->\n\nMoon.[^1]\n\n[^1]: false\n",
		"a longer fence":          begin + line + "\n\n````\n```\n````\nMoon.[^1]\n\n[^1]: false\n",
		"a fence that goes on":    begin + line + "\n\n```\nx\n```y\n```\n\nMoon.[^1]\n\n[^1]: false\n",
	} {
		if got := library.Check(body, known, nil); len(got) == 0 {
			t.Errorf("%s: nothing is wrong with\n%s", name, body)
		}
	}
	second := cited
	second.Label = "c9876543210"
	known[second.Label] = second
	for name, body := range map[string]string{
		"code":        begin + "Such as:\n```go\nx[^a]\n\n[^b]: c\n```\n\n~~~~\n```\n[^1]\n~~~~\n\n" + line + "\n",
		"two":         begin + "Good.[^c9876543210]\n\n" + line + "\n" + library.Definition(second) + "\n\n# End\n\nText.\n",
		"line ends":   strings.ReplaceAll(begin+line+"\n", "\n", "\r\n"),
		"a colon":     "So says one[^c0123456789]: milk.\n\n" + line + "\n",
		"last of all": begin + line,
	} {
		if got := library.Check(body, known, nil); len(got) != 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestAnExcerptIsOfWholeWords: a part of a word is not what the source says.
func TestAnExcerptIsOfWholeWords(t *testing.T) {
	for text, excerpt := range map[string]string{
		"It is unhealthy for you.":      "healthy for you",
		"In 95 of 100 people it holds.": "5 of 100 people",
		"It costs 1.5 million a year.":  "5 million a year",
		"We saw the resume\u0301 there": "We saw the resume",
	} {
		if _, _, ok := library.Find(text, excerpt); ok {
			t.Errorf("%q says %q", text, excerpt)
		}
	}
	for text, excerpt := range map[string]string{
		"It is unhealthy; healthy for you is milk.": "healthy for you",
		"It is *healthy for you*.":                  "healthy for you",
		"奶酪是由牛奶制成的没有别的东西":                           "牛奶制成的没有别的",
		"1. 5 million a year":                       "5 million a year",
	} {
		if _, _, ok := library.Find(text, excerpt); !ok {
			t.Errorf("%q does not say %q", text, excerpt)
		}
	}
}

// TestAJudgeSeesWhatIsAround: what is around an excerpt is so on both its sides, also in a long line.
func TestAJudgeSeesWhatIsAround(t *testing.T) {
	text := strings.Repeat("word ", 4000) + "It is false that cheese is from the moon, says everybody." + strings.Repeat(" word", 4000)
	words, line, ok := library.Find(text, "cheese is from the moon")
	if got := library.Around(text, words, line, 2<<10); !ok || !strings.Contains(got, "It is false that "+words+", says everybody.") {
		t.Errorf("%v, line %d, and around it %q", ok, line, got[:min(len(got), 80)])
	}
}

// TestAnAddressStaysAnAddress: what an address ends with does not end its link.
func TestAnAddressStaysAnAddress(t *testing.T) {
	of := cited
	of.Address = `https://cheese.example/?[here](https://moon.example)\`
	if got := library.Definition(of); strings.Contains(got, `\>)`) {
		t.Error(got)
	}
	of.Excerpt = "Cheese is made of milk\u202e, \u2066surely"
	if got := library.Definition(of); strings.ContainsAny(got, "\u202e\u2066") {
		t.Errorf("words turn what follows them around: %q", got)
	}
}

// TestManyReferencesAreChecked in a time that grows as they do.
func TestManyReferencesAreChecked(t *testing.T) {
	var b strings.Builder
	for i := range 150000 {
		b.WriteString("[^" + strings.Repeat("x", 8) + string(rune('0'+i%10)) + string(rune('0'+i/10%10)) + string(rune('0'+i/100%10)) + string(rune('0'+i/1000%10)) + string(rune('0'+i/10000%10)) + string(rune('0'+i/100000)) + "]")
	}
	began := time.Now()
	if got := library.Cited(b.String()); len(got) != 150000 || time.Since(began) > 5*time.Second {
		t.Errorf("%d labels in %v", len(got), time.Since(began))
	}
}
