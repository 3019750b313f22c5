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

// quoted is the line that stands for what is only quoted: nothing leads up over it.
const quoted = "\x00"

// own is a text without what its author only quotes: lines behind a > and blocks between fences. As in Markdown, a fence is closed by
// one of the same sign, at least as long, with nothing behind it.
func own(text string) string {
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), quoted, " ")) {
		t := strings.TrimSpace(line)
		mark := fenceOf(t)
		switch {
		case fence != "":
			if len(mark) >= len(fence) && mark[0] == fence[0] && mark == t {
				fence = ""
			}
			line = "\n" + quoted + "\n"
		case mark != "":
			fence, line = mark, "\n"+quoted+"\n"
		case strings.HasPrefix(t, ">"):
			line = "\n" + quoted + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// fenceOf is the signs of a fence with which a line begins, "" if with none.
func fenceOf(line string) string {
	for _, sign := range []string{"`", "~"} {
		if rest := strings.TrimLeft(line, sign); len(line)-len(rest) >= 3 {
			return line[:len(line)-len(rest)]
		}
	}
	return ""
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
		if i += at; sentenceBegins(text[:i], words) && sentenceEnds(words, text[i+len(words):]) {
			return true
		}
		_, n := utf8.DecodeRuneInString(text[i:])
		at = i + n
	}
}

const stops = ".!?"

// shortened are words that have a full stop and end no sentence. Where one does, the sentence behind it is not kept alone.
var shortened = []string{"etc", "vs", "cf", "no", "nos", "nr", "mr", "mrs", "ms", "dr", "prof", "st", "approx", "incl", "excl", "resp", "fig", "sec", "ch", "vol", "pp", "ca", "al", "eg", "ie", "viz", "inc", "ltd", "jr", "sr", "dept", "est", "max", "min", "usw", "bzw", "evtl", "ggf", "bspw", "vgl", "sog"}

// stopped reports whether a text ends with the end of a sentence: a stop that belongs to no shortened word, initial or number.
func stopped(s string) bool {
	if s == "" || !strings.ContainsAny(s[len(s)-1:], stops) {
		return false
	}
	if s[len(s)-1] != '.' {
		return true
	}
	word := strings.TrimSuffix(s[strings.LastIndexFunc(s, unicode.IsSpace)+1:], ".")
	word = strings.TrimLeft(word, "([{\"'“‘«*_")
	return utf8.RuneCountInString(word) > 1 && !strings.Contains(word, ".") && strings.Trim(word, "0123456789") != "" && !slices.Contains(shortened, strings.ToLower(word))
}

// sentenceBegins reports whether a sentence can begin behind a text, with words: on a line of its own that nothing leads up to, or
// behind the end of another one, with a letter that is not small.
func sentenceBegins(before, words string) bool {
	above, line := before[:strings.LastIndexByte(before, '\n')+1], before[strings.LastIndexByte(before, '\n')+1:]
	lead := strings.TrimSpace(line)
	if lead != "" && !unicode.IsSpace(rune(line[len(line)-1])) {
		return false
	}
	if lead != "" && !listMark(lead) {
		first, _ := utf8.DecodeRuneInString(words)
		return stopped(lead) && unicode.IsLetter(first) && !unicode.IsLower(first)
	}
	lines := strings.Split(above, "\n")
	lines = lines[:len(lines)-1]
	gap := false
	for _, l := range slices.Backward(lines) {
		l = strings.TrimSpace(l)
		mark, _, _ := strings.Cut(l, " ")
		switch {
		case l == quoted:
			return true
		case l == "":
			gap = true
		case listMark(mark) && lead != "": // what leads up to a list is above all of it
		default:
			// A line that leads up to this one says what it means, also over a gap.
			return stopped(l) || gap && !strings.HasSuffix(strings.TrimRight(l, "*_"), ":")
		}
	}
	return true
}

// sentenceEnds reports whether a sentence that ends in words can end before a text.
func sentenceEnds(words, after string) bool {
	blank := strings.TrimLeft(after, " \t")
	rest, newLine := strings.CutPrefix(blank, "\n")
	next, _, _ := strings.Cut(rest, "\n")
	next = strings.TrimSpace(next)
	mark, _, _ := strings.Cut(next, " ")
	over := blank == "" || newLine && (next == "" || listMark(mark)) // the line ends, and nothing goes on in the next one
	if !strings.ContainsAny(words[len(words)-1:], stops) {
		return over || blank != "" && strings.ContainsAny(blank[:1], stops) && sentenceEnds(words+blank[:1], blank[1:])
	}
	if over {
		return true
	}
	goes, _ := utf8.DecodeRuneInString(strings.TrimSpace(after))
	return unicode.IsSpace(rune(after[0])) && stopped(words) && !unicode.IsLower(goes)
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
