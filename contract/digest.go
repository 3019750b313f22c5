package contract

import (
	"crypto/sha256"
	"encoding/binary"
)

// Digest is what two appends of the same id from the same Origin must share to
// count as the same event: type, subject, user, run, task, causation, correlation and
// data. What the appender stamps (sequence, epoch, time) and the trace context
// are left out, because a repeated append may carry others. Data beyond
// MaxInlineData count through their blob reference.
func Digest(e Event) [sha256.Size]byte {
	b := make([]byte, 0, 1024) // of fixed size, so that it needs no heap; most events fit
	put := func(s string) {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	put(Origin(e.Source))
	put(e.ID)
	put(e.Type)
	put(e.Subject)
	put(e.User)
	put(e.Run)
	put(e.Task)
	put(e.Causation)
	put(e.Correlation)
	put(string(e.DataRef))
	at := len(b)
	b = appendCompact(append(b, make([]byte, 8)...), e.Data)
	binary.BigEndian.PutUint64(b[at:], uint64(len(b)-at-8))
	return sha256.Sum256(b)
}

// appendCompact appends JSON without the space between its tokens. Unlike
// json.Compact it does not check what was checked when the event was made.
func appendCompact(b, data []byte) []byte {
	inText, from := false, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inText && c == '\\':
			i++ // an escaped character does not end the string
		case c == '"':
			inText = !inText
		case !inText && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			b = append(b, data[from:i]...)
			from = i + 1
		}
	}
	return append(b, data[from:]...)
}
