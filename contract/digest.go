package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
)

// Digest is what two appends of the same (source, id) must share to count as
// the same event: type, subject, user, run, task, causation, correlation and
// data. What the appender stamps (sequence, epoch, time) and the trace context
// are left out, because a repeated append may carry others. Data beyond
// MaxInlineData count through their blob reference.
func Digest(e Event) [sha256.Size]byte {
	h := sha256.New()
	var n [8]byte
	put := func(b []byte) {
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:]) // never fails
		h.Write(b)
	}
	for _, s := range []string{e.Source, e.ID, e.Type, e.Subject, e.User, e.Run, e.Task, e.Causation, e.Correlation, string(e.DataRef)} {
		put([]byte(s))
	}
	data := []byte(e.Data)
	var compact bytes.Buffer
	if json.Compact(&compact, data) == nil {
		data = compact.Bytes()
	}
	put(data)
	return [sha256.Size]byte(h.Sum(nil))
}
