package library

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

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
		return "[" + plain(name) + "](<" + strings.NewReplacer("<", "%3C", ">", "%3E", `\`, "%5C").Replace(c.Address) + ">)"
	}
	// A path is relative to the workspace's root, and a document may be in any folder below artifacts/.
	return "[" + plain(name) + "](</" + (&url.URL{Path: c.Address}).EscapedPath() + ">)"
}

// plain keeps the words of a source from being anything but words in Markdown, and from turning those that follow them around.
func plain(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.Is(unicode.Bidi_Control, r) {
			continue
		}
		if strings.ContainsRune("\\`*_[]<>#|~&!$", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

var (
	reference  = lazy.Regexp(`\[\^([^\]\s]+)\]`)
	definition = lazy.Regexp(`(?m)^\[\^([^\]\s]+)\]:.*$`)
	// nested is a definition that a renderer finds in a list or a quotation, or behind blanks.
	nested  = lazy.Regexp(`(?m)^[ \t>*+\-0-9.)]+\[\^([^\]\s]+)\]:`)
	opening = lazy.Regexp("^(?:(`{3,})[^`]*|(~{3,}).*)$")
	// doubtful begins a line that may open a block of code, or make text of a line that would.
	doubtful = lazy.Regexp("^[ \\t>*+\\-0-9.)]*(?:<|```|~~~)")
)

// Cited are the labels that a document refers to in its text, each once, in their order.
func Cited(body string) []string {
	var out []string
	seen := map[string]bool{}
	for _, m := range reference().FindAllStringSubmatch(definition().ReplaceAllString(outsideCode(body), ""), -1) {
		if !seen[m[1]] {
			seen[m[1]] = true
			out = append(out, m[1])
		}
	}
	return out
}

// outsideCode is a document without its blocks of code, in which nothing is cited, and with "\n" at the end of each line. Where it could be
// that a renderer takes other lines for code, all of it counts.
func outsideCode(body string) string {
	body = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(body)
	var out []string
	fence := ""
	for l := range strings.SplitSeq(body, "\n") {
		m := opening().FindStringSubmatch(l)
		switch {
		case fence != "":
			if closes(l, fence) {
				fence = ""
			}
		case m != nil:
			fence = m[1] + m[2]
		case doubtful().MatchString(l):
			return body
		default:
			out = append(out, l)
		}
	}
	if fence != "" {
		return body
	}
	return strings.Join(out, "\n")
}

// closes reports whether a line ends the block of code that a fence began.
func closes(line, fence string) bool {
	t := strings.TrimRight(line, " \t")
	marks := strings.TrimLeft(t, " ")
	return len(t)-len(marks) <= 3 && len(marks) >= len(fence) && strings.Trim(marks, fence[:1]) == ""
}

// goesOn returns the labels whose definitions have more than their line: what follows with no empty line between, or behind blanks, is theirs.
func goesOn(text string) (labels []string) {
	label, empty := "", false
	for l := range strings.SplitSeq(text, "\n") {
		m := definition().FindStringSubmatch(l)
		switch {
		case m != nil:
			label, empty = m[1], false
		case strings.Trim(l, " \t") == "":
			empty = true
		default:
			if label != "" && (!empty || l[0] == ' ' || l[0] == '\t') {
				labels = append(labels, label)
			}
			label = ""
		}
	}
	return labels
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
	text, defined := outsideCode(body), map[string]string{}
	for _, m := range definition().FindAllStringSubmatch(text, -1) {
		if _, twice := defined[m[1]]; twice {
			say("[^%s] is defined twice; keep one of them.", m[1])
		}
		defined[m[1]] = strings.TrimRight(m[0], " \t")
	}
	for _, m := range nested().FindAllStringSubmatch(text, -1) {
		say("[^%s] is defined in a list or a quotation, or behind blanks. A definition begins its line.", m[1])
	}
	for _, label := range goesOn(text) {
		say("[^%s] has more in its definition than its line. Leave an empty line after it, and begin the next one without a blank.", label)
	}
	cited, refers := Cited(body), map[string]bool{}
	for _, label := range cited {
		refers[label] = true
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
		if !refers[label] {
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
	if scheme, rest, ok := strings.Cut(what, "://"); !ok {
		what = strings.TrimPrefix(path.Clean("/"+strings.TrimPrefix(what, "/computer/")), "/")
	} else if strings.EqualFold(scheme, "http") { // pages are read at https
		what = "https://" + rest
	}
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
