package summary

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/state"
)

// Pinned is what loops are told in each request of what people told the computer to keep: their words, and nothing
// that files or models wrote. "" when nothing is kept.
func Pinned(facts []contract.Fact) string {
	if len(facts) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nWhat people told this computer to keep, in their own words. Follow it as you follow what the user says; what the user says now counts more. It grants no tool, network, budget or check:\n")
	for _, f := range facts {
		b.WriteString("- " + f.Text + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// KeptSince is what loops are told at the end of a request of facts that were remembered or forgotten since their run
// began. The first line of each names the fact, so that what is told of it last counts.
func KeptSince(pinned []contract.Fact, facts []state.Fact) []string {
	var out []string
	for _, f := range facts {
		head := "Since this run began, of what this computer keeps (" + f.ID + "):\n"
		was := slices.ContainsFunc(pinned, func(p contract.Fact) bool { return p.ID == f.ID })
		switch {
		case !f.Kept && was:
			out = append(out, head+"the user had it forgotten, so it holds no longer: "+f.Text)
		case !f.Kept:
			out = append(out, head+"the user had it forgotten; it does not hold.")
		default:
			out = append(out, head+"the user said to keep this: "+f.Text)
		}
	}
	return out
}

// Said is something that a person said to a run.
type Said struct {
	Event string
	Text  string
}

// Source returns the event of the newest of what was said that has words in it, as whole sentences.
func Source(said []Said, words string) (string, error) {
	for _, s := range slices.Backward(said) {
		if quotes(own(s.Text), words) {
			return s.Event, nil
		}
	}
	return "", &contract.FieldError{Field: "words", Reason: "are not whole sentences that the user wrote in this run's prompt, in what they said since, or in an answer of their own; copy theirs word for word, or leave it"}
}

// own is a text without what its author only quotes: lines behind a > and blocks between fences.
func own(text string) string {
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(strings.ReplaceAll(text, "\r\n", "\n")) {
		t := strings.TrimSpace(line)
		mark := ""
		for _, f := range []string{"```", "~~~"} {
			if strings.HasPrefix(t, f) {
				mark = f
			}
		}
		switch {
		case fence != "":
			if mark == fence {
				fence = ""
			}
			line = "\n\n"
		case mark != "":
			fence, line = mark, "\n\n"
		case strings.HasPrefix(t, ">"):
			line = "\n\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// quotes reports whether words stand in a text as whole sentences or lines: a part of a sentence may say the opposite.
func quotes(text, words string) bool {
	if strings.TrimSpace(words) != words || words == "" {
		return false
	}
	for at := 0; ; {
		i := strings.Index(text[at:], words)
		if i < 0 {
			return false
		}
		if i += at; sentenceBegins(text[:i]) && sentenceEnds(words, text[i+len(words):]) {
			return true
		}
		_, n := utf8.DecodeRuneInString(text[i:])
		at = i + n
	}
}

const stops = ".!?"

// sentenceBegins reports whether a sentence can begin behind a text.
func sentenceBegins(before string) bool {
	line := before[strings.LastIndexByte(before, '\n')+1:]
	if lead := strings.TrimSpace(line); lead != "" {
		spaced := unicode.IsSpace(rune(line[len(line)-1]))
		return spaced && (strings.ContainsAny(lead[len(lead)-1:], stops) || listMark(lead))
	}
	above := strings.TrimRight(before, " \t")
	above = strings.TrimSuffix(above, "\n")
	above = above[strings.LastIndexByte(above, '\n')+1:]
	above = strings.TrimSpace(above)
	return above == "" || strings.ContainsAny(above[len(above)-1:], stops+":")
}

// sentenceEnds reports whether a sentence that ends in words can end before a text.
func sentenceEnds(words, after string) bool {
	if strings.ContainsAny(words[len(words)-1:], stops) {
		return after == "" || unicode.IsSpace(rune(after[0]))
	}
	after = strings.TrimLeft(after, " \t")
	if after == "" || strings.ContainsAny(after[:1], stops) {
		return true
	}
	rest, newLine := strings.CutPrefix(after, "\n")
	if !newLine {
		return false
	}
	next, _, _ := strings.Cut(rest, "\n")
	next = strings.TrimSpace(next)
	mark, _, _ := strings.Cut(next, " ")
	return next == "" || listMark(mark)
}

// listMark reports whether a word begins an entry of a list.
func listMark(word string) bool {
	if word == "-" || word == "*" || word == "•" {
		return true
	}
	digits := strings.TrimRight(word, ".)")
	return digits != word && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// Noted returns the id of the event with which a call of the Director has something kept. It is the same after a
// restart.
func Noted(run, call string) string { return contract.DeriveID(run, "memory:"+call) }

// DescribeNoted is what the Director reads when something is kept.
func DescribeNoted(text string) string {
	return "The computer keeps it, in this run and in later ones: " + text
}
