// Package tail keeps the end of what a program says.
package tail

import (
	"errors"
	"io"
	"sync"
)

// Writer keeps the last Max bytes of what is written to it. It may be used by many goroutines at once, and must not be copied.
type Writer struct {
	Max int

	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer; it never fails.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, p[max(0, len(p)-w.Max):]...)
	if over := len(w.kept) - w.Max; over > 0 {
		w.kept = append(w.kept[:0], w.kept[over:]...)
	}
	return len(p), nil
}

// ReadFrom implements io.ReaderFrom: a program that is listened to for hours hardly ever says something, so what waits for it need not
// have the 32 KiB of io.Copy.
func (w *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	buf := make([]byte, 512)
	for {
		got, err := r.Read(buf)
		n += int64(got)
		_, _ = w.Write(buf[:got]) // it never fails
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// String returns what is kept.
func (w *Writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.kept)
}
