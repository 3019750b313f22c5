package library

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/lazy"
)

// Definition is the line with which a document says what a citation of it is. It is made of what the log says and of
// nothing else, so a document has it either so or not at all.
func Definition(c contract.Citation) string {
	return fmt.Sprintf("[^%s]: “%s” — %s, line %d. %s", c.Label, plain(c.Excerpt), source(c), c.Line, judged(c))
}

// judged says in words what is known of a citation's support.
func judged(c contract.Citation) string {
	switch c.Support {
	case contract.SupportYes:
		return "Says what is claimed."
	case contract.SupportNo:
		return "**Does not say what is claimed.**"
	}
	return "Not known whether it says what is claimed."
}

func source(c contract.Citation) string {
	name := c.Title
	if name == "" {
		name = c.Address
	}
	if strings.HasPrefix(c.Address, "https://") {
		return "[" + plain(name) + "](<" + strings.NewReplacer("<", "%3C", ">", "%3E").Replace(c.Address) + ">)"
	}
	// A path is relative to the workspace's root, and a document may be in any folder below artifacts/.
	return "[" + plain(name) + "](</" + (&url.URL{Path: c.Address}).EscapedPath() + ">)"
}

// plain keeps the words of a source from being anything but words in Markdown.
func plain(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\\`*_[]<>#|~&!$", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

var (
	reference  = lazy.Regexp(`\[\^([^\]\s]{1,64})\]`)
	definition = lazy.Regexp(`(?m)^\[\^([^\]\s]{1,64})\]:.*$`)
)

// Cited are the labels that a document refers to in its text, each once, in their order.
func Cited(body string) []string {
	var out []string
	for _, m := range reference().FindAllStringSubmatch(definition().ReplaceAllString(outsideCode(body), ""), -1) {
		if !slices.Contains(out, m[1]) {
			out = append(out, m[1])
		}
	}
	return out
}

// outsideCode is a document without its blocks of code, in which nothing is cited.
func outsideCode(body string) string {
	var out []string
	fence := ""
	for l := range strings.SplitSeq(body, "\n") {
		t := strings.TrimSpace(l)
		switch {
		case fence == "" && (strings.HasPrefix(t, "```") || strings.HasPrefix(t, "~~~")):
			fence = t[:3]
		case fence != "" && strings.HasPrefix(t, fence):
			fence = ""
		case fence == "":
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// maxProblems bounds what is said of one document.
const maxProblems = 20

// Check says what is wrong with a document's citations: each reference has to be one of the citations that there are,
// and each definition the one that the citation has. Of found, what tasks found to be said in the document, something has to be cited.
func Check(body string, known map[string]contract.Citation, found []contract.Citation) (problems []string) {
	say := func(format string, args ...any) {
		if len(problems) < maxProblems {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	defined := map[string]string{}
	for _, m := range definition().FindAllStringSubmatch(outsideCode(body), -1) {
		if _, twice := defined[m[1]]; twice {
			say("[^%s] is defined twice; keep one of them.", m[1])
		}
		defined[m[1]] = strings.TrimRight(m[0], " \t\r")
	}
	cited := Cited(body)
	for _, label := range cited {
		c, ok := known[label]
		switch {
		case !ok:
			say("[^%s] is no citation of this computer: cite records one, and says its label.", label)
		case defined[label] == "":
			say("[^%s] is not defined. Add this line at the end of the document, as it stands:\n%s", label, Definition(c))
		case defined[label] != Definition(c):
			say("[^%s] is not defined as it was recorded. Make its line this, as it stands:\n%s", label, Definition(c))
		}
	}
	for label := range defined {
		if !slices.Contains(cited, label) {
			say("[^%s] is defined, and nothing refers to it: remove its line, or refer to it where its claim stands.", label)
		}
	}
	if len(cited) == 0 && len(found) > 0 {
		say("The document cites nothing, though %d claims were found with their sources. Refer to them where they stand, such as [^%s].", len(found), found[0].Label)
	}
	slices.Sort(problems)
	return problems
}

// SummaryPath is the document in which a thing is summarised, the same for the same thing.
func SummaryPath(what string) string {
	sum := sha256.Sum256([]byte(what))
	name := what
	if _, rest, ok := strings.Cut(what, "://"); ok {
		name = rest
	}
	name, _, _ = strings.Cut(strings.TrimRight(name, "/"), "?")
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	short := strings.Trim(b.String(), "-")
	short = strings.Trim(short[max(0, len(short)-60):], "-")
	return "artifacts/summaries/" + strings.TrimLeft(short+"-"+hex.EncodeToString(sum[:3]), "-") + ".md"
}
