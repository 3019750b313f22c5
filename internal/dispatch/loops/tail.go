package loops

import (
	"strings"
	"sync"
)

// TailMost is how many bytes of a stream's end a Tail keeps.
const TailMost = 4 << 10

// Tail keeps the end of a stream.
type Tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[max(0, len(b)-TailMost):]...)
	t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-TailMost):]...)
	return len(b), nil
}

// Text is what it keeps.
func (t *Tail) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.kept), "")
}
