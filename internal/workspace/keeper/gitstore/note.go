package gitstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// encodeNote makes a commit message: the text, then the trailers. It changes the note to
// what DecodeNote will return.
func encodeNote(n *wire.Note) string {
	msg := strings.ToValidUTF8(strings.ReplaceAll(n.Message, "\x00", ""), "\uFFFD")
	if msg = strings.TrimSpace(msg); msg == "" {
		msg = "Checkpoint"
	}
	if len(msg) > 4000 {
		msg = strings.ToValidUTF8(msg[:4000], "")
	}
	n.Message = msg
	if n.Verified == "" {
		n.Verified = "unknown"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nChoir-Kind: %s\nChoir-Seq: %d\n", msg, OneLine(n.Kind), n.Seq)
	if n.At != 0 {
		fmt.Fprintf(&b, "Choir-Time: %d\n", n.At)
	}
	for _, t := range [][2]string{{"Choir-Run", n.Run}, {"Choir-Task", n.Task}, {"Choir-Publish", n.Publish}, {"Choir-Actor", n.Actor}, {"Choir-User", n.User}} {
		if t[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", t[0], OneLine(t[1]))
		}
	}
	fmt.Fprintf(&b, "Choir-Verified: %s\nChoir-Files: %d\n", OneLine(n.Verified), n.Files)
	for _, t := range []struct {
		key string
		val any
		set bool
	}{
		{"Choir-Skipped", n.Skipped, len(n.Skipped) > 0}, {"Choir-Skipped-Files", n.SkippedFiles, n.SkippedFiles > 0},
		{"Choir-Ignored", n.IgnoredPaths, len(n.IgnoredPaths) > 0}, {"Choir-Ignored-Count", n.IgnoredCount, n.IgnoredCount > 0}, {"Choir-Restore", n.Restore, n.Restore != nil},
	} {
		if !t.set {
			continue
		}
		if j, err := json.Marshal(t.val); err == nil {
			fmt.Fprintf(&b, "%s: %s\n", t.key, j)
		}
	}
	return b.String()
}

// OneLine is a text without its line breaks.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}

// DecodeNote decodes a commit message; unknown trailers are left out.
func DecodeNote(message string) wire.Note {
	message = strings.TrimRight(message, "\n")
	text, trailers := message, ""
	if i := strings.LastIndex(message, "\n\n"); i >= 0 {
		text, trailers = message[:i], message[i+2:]
	}
	n := wire.Note{Message: text, Verified: "unknown"}
	if !strings.HasPrefix(trailers, "Choir-") {
		n.Message = message
		return n
	}
	for line := range strings.SplitSeq(trailers, "\n") {
		key, val, _ := strings.Cut(line, ": ")
		switch key {
		case "Choir-Kind":
			n.Kind = val
		case "Choir-Seq":
			n.Seq, _ = strconv.ParseUint(val, 10, 64) // 0 for a foreign one
		case "Choir-Time":
			n.At, _ = strconv.ParseInt(val, 10, 64) // likewise
		case "Choir-Run":
			n.Run = val
		case "Choir-Task":
			n.Task = val
		case "Choir-Publish":
			n.Publish = val
		case "Choir-Actor":
			n.Actor = val
		case "Choir-User":
			n.User = val
		case "Choir-Verified":
			if val == "pass" || val == "fail" {
				n.Verified = val
			}
		case "Choir-Files":
			n.Files, _ = strconv.Atoi(val) // likewise
		case "Choir-Skipped":
			if json.Unmarshal([]byte(val), &n.Skipped) != nil {
				n.Skipped = nil
			}
		case "Choir-Ignored":
			if json.Unmarshal([]byte(val), &n.IgnoredPaths) != nil {
				n.IgnoredPaths = nil
			}
		case "Choir-Skipped-Files":
			n.SkippedFiles, _ = strconv.Atoi(val) // likewise
		case "Choir-Ignored-Count":
			n.IgnoredCount, _ = strconv.Atoi(val) // likewise
		case "Choir-Restore":
			var r wire.Restore
			if json.Unmarshal([]byte(val), &r) == nil {
				n.Restore = &r
			}
		}
	}
	return n
}
