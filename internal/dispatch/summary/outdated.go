package summary

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	story "choir.dev/choiros/internal/run"
)

// Bounds of one note on what others changed: files that it names, and bytes of a name.
const (
	maxOutdated     = 20
	maxOutdatedName = 200
)

// changed is the beginning of what recall is asked for to show a note's files.
const changed = "changed-"

// Outdated is what the loop of a task is told of live files that it has read or written and others have changed since, each note with its
// number.
func Outdated(t *story.Task) (out []string) {
	for i, o := range t.Outdated {
		var b strings.Builder
		fmt.Fprintf(&b, "The computer says (changed files, %d): others have changed live files that you have read or written. Your tree still has them as they were before. ", i+1)
		if t.Changes() {
			b.WriteString("What you leave is merged with theirs when it is published, and where both changed the same lines theirs stay: keep what they did, and don't do it again. ")
		} else {
			b.WriteString("What you say of them may not hold any more: say so. ")
		}
		fmt.Fprintf(&b, "recall with call %q shows how the live files differ from those that you began with.", changed+strconv.Itoa(i+1))
		for _, f := range o.Files[:min(len(o.Files), maxOutdated)] {
			b.WriteString("\n- " + changedBy(f))
		}
		if n := len(o.Files) - maxOutdated; n > 0 {
			fmt.Fprintf(&b, "\nand %d more", n)
		}
		if o.Last {
			b.WriteString("\nYou are told of no further changes.")
		}
		out = append(out, b.String())
	}
	return out
}

// changedBy is one change in a line. A file's name is data: in quotes, without anything that could pass for a line of its own or for words of the user.
func changedBy(f contract.OutdatedPath) string {
	did := "changed"
	if f.Removed {
		did = "removed"
	}
	by := "by something that writes to the files itself, such as a command or a push"
	switch f.By {
	case contract.KindPerson:
		by = "by the user"
	case contract.KindApp:
		by = "by the user's desktop"
	case contract.KindAssociate, contract.KindDirector, contract.KindWorker:
		by = "by another task"
	case contract.KindSystem:
		by = "by the computer"
	}
	name := strconv.QuoteToASCII(contract.Clip(f.Path, maxOutdatedName))
	for _, says := range []string{"The user says", "The computer says"} {
		name = strings.ReplaceAll(name, says, strings.ReplaceAll(says, " ", `\x20`))
	}
	if len(f.Path) > maxOutdatedName {
		name += "…"
	}
	return fmt.Sprintf("%s %s %s at %s", name, did, by, f.Time.UTC().Format(time.TimeOnly+" UTC"))
}

// outdated lists what others have changed, newest first, each file once.
func outdated(t *story.Task) (out []string) {
	seen := map[string]bool{}
	for i, o := range slices.Backward(t.Outdated) {
		for _, f := range slices.Backward(o.Files) {
			if !seen[f.Path] {
				seen[f.Path] = true
				out = append(out, fmt.Sprintf("%s [%s%d]", changedBy(f), changed, i+1))
			}
		}
	}
	return out
}

// OutdatedOf returns the files of the note that a call of recall asks for, if it asks for one.
func OutdatedOf(t *story.Task, call string) (paths []string) {
	number, ok := strings.CutPrefix(call, changed)
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || n > len(t.Outdated) {
		return nil
	}
	for _, f := range t.Outdated[n-1].Files {
		paths = append(paths, f.Path)
	}
	return paths
}
