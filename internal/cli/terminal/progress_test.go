package terminal

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"choir.dev/choiros/test/choirtest"
)

// TestProgressIsForTerminals shows that progress is drawn on a terminal only and erased at the end,
// and that colours are used there unless NO_COLOR is set.
func TestProgressIsForTerminals(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	ours, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if draws(w) || colours(w) || !draws(theirs) || !colours(theirs) {
		t.Errorf("pipe: %v, %v; terminal: %v, %v", draws(w), colours(w), draws(theirs), colours(theirs))
	}
	if err := Table(theirs, func(w io.Writer) { Row(w, "✓", "✕ forged\x1b[2J") }); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NO_COLOR", "1")
	if colours(theirs) || !draws(theirs) {
		t.Error("NO_COLOR is about colours, and not about what is drawn")
	}
	if err := Table(theirs, func(w io.Writer) { Row(w, "✓", "plain") }); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "dumb")
	if draws(theirs) {
		t.Error("a dumb terminal is drawn on")
	}
	buf := make([]byte, 4096)
	var got string
	for !strings.Contains(got, "plain") {
		n, err := ours.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	if !strings.Contains(got, "\x1b[32m✓\x1b[0m") || strings.Contains(got, "\x1b[2J") || !strings.Contains(got, "✓  plain") {
		t.Errorf("the terminal got %q", got)
	}
	_ = theirs.Close()
	_ = ours.Close()

	p := &progress{what: "putting\x1b[2J x", total: 4000, over: make(chan struct{})}
	var drawn lockedBuffer
	p.drawn.Go(func() { p.draw(&drawn) })
	if n, err := io.Copy(io.Discard, p.Of(strings.NewReader(strings.Repeat("x", 3000)))); err != nil || n != 3000 {
		t.Fatal(n, err)
	}
	choirtest.Eventually(t, 10*time.Second, "it is drawn", func() bool { return strings.Contains(drawn.String(), "3.0 kB of 4.0 kB, 75 %") })
	p.End()
	if got := drawn.String(); !strings.HasSuffix(got, "\r\x1b[K") || strings.Contains(got, "\x1b[2J") {
		t.Errorf("drawn was %q; want that it is gone, and nothing that the terminal obeys", got)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
