package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/fault"
)

type memory struct {
	bytes.Buffer
	gaps int64
}

func (m *memory) write(p []byte) error { m.Write(p); return nil }
func (m *memory) gap(n int64) error {
	m.gaps += n
	m.WriteString("|")
	return nil
}

// TestLimiter shows that however a stream is cut, its head and its tail are kept, and the rest is
// counted.
func TestLimiter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		head, tail := rapid.Int64Range(0, 40).Draw(t, "head"), rapid.Int64Range(0, 40).Draw(t, "tail")
		chunks := rapid.SliceOf(rapid.SliceOfN(rapid.ByteRange('a', 'z'), 0, 60)).Draw(t, "chunks")
		var to memory
		l := newLimiter(&to, head, tail)
		var all []byte
		for _, c := range chunks {
			all = append(all, c...)
			if err := l.write(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.finish(); err != nil {
			t.Fatal(err)
		}
		want := string(all)
		if n := int64(len(all)); (head > 0 || tail > 0) && n > head+tail {
			want = string(all[:head]) + "|" + string(all[n-tail:])
			if l.dropped() != n-head-tail || to.gaps != l.dropped() {
				t.Fatalf("dropped %d, told %d, want %d", l.dropped(), to.gaps, n-head-tail)
			}
		}
		if to.String() != want {
			t.Fatalf("kept %q, want %q", to.String(), want)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("o\x00\x00\x00\x02hi"))
	f.Add([]byte("o\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		buf := make([]byte, maxFrame)
		var again bytes.Buffer
		w := &frameWriter{w: &again}
		for {
			kind, p, err := readFrame(r, buf)
			if err != nil {
				break
			}
			if err := w.frame(kind, p); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(data, again.Bytes()) {
			t.Fatalf("%q became %q", data, again.Bytes())
		}
	})
}

// FuzzReceive shows that whatever a guest sends, the host's side ends with an error or an exit, and
// writes no more bytes than it was sent.
func FuzzReceive(f *testing.F) {
	exit := append([]byte("x\x00\x00\x00\x02"), "{}"...)
	f.Add(exit)
	f.Add(append([]byte("O\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x09"), exit...))
	f.Add([]byte("a\x00\x00\x00\x04\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		_, _ = receive(bytes.NewReader(data), Streams{Stdout: &out, Stderr: &out}, newCredit())
		if out.Len() > 64*(len(data)+1) {
			t.Fatalf("%d bytes became %d", len(data), out.Len())
		}
	})
}

func FuzzTarget(f *testing.F) {
	for _, s := range []string{"a.example:443", "[::1]:80", "evil\x00.a.example:443", "a:0", ":443", "a:99999", "\u0430.example:443", "a%00:1", "[fe80::1%25eth0]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := checkTarget(s)
		if err != nil {
			return
		}
		host, port, err := net.SplitHostPort(got)
		if err != nil || host == "" || port == "" || len(host) > 253 || strings.ContainsAny(got, "\x00\r\n \t/@%?#\\") {
			t.Fatalf("%q passes", s)
		}
		for i := range len(got) {
			if got[i] < '!' || got[i] > '~' {
				t.Fatalf("%q passes", s)
			}
		}
	})
}

// TestInputWindow shows that a host that ignores the window is refused, and that one that respects
// it never waits for ever.
func TestInputWindow(t *testing.T) {
	room := newCredit()
	in := newInbox(room.give)
	if in.put(make([]byte, inputWindow+1)) {
		t.Error("more than the window was taken")
	}
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	var got []byte
	var both sync.WaitGroup
	both.Go(func() { got, _ = io.ReadAll(in) })
	both.Go(func() {
		for p := data; len(p) > 0; {
			n := room.take(len(p))
			if !in.put(p[:n]) {
				t.Error("a host that keeps the window was refused")
				break
			}
			p = p[n:]
		}
		in.close()
	})
	both.Wait()
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d arrived", len(got), len(data))
	}
	go room.end()
	for room.take(1) != 0 {
	}
}

// TestRunner shows what services rely on, with the runner outside a box.
func TestRunner(t *testing.T) {
	r := Runner{Root: t.TempDir(), Env: map[string]string{"PATH": "/usr/bin:/bin", "A": "1"}}
	var out, eout bytes.Buffer
	exit, err := r.Run(t.Context(), ExecRequest{Argv: []string{"sh", "-c", "echo $A $B; cat; echo e >&2; exit 4"}, Env: map[string]string{"B": "2"}, Stdin: true},
		Streams{Stdin: strings.NewReader("in\n"), Stdout: &out, Stderr: &eout})
	if err != nil || exit.Code != 4 || out.String() != "1 2\nin\n" || eout.String() != "e\n" {
		t.Errorf("%+v %v %q %q", exit, err, out.String(), eout.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	long := fmt.Sprintf("9%07d", os.Getpid()) // unique, since other processes on this machine may sleep too
	if _, err := r.Run(ctx, ExecRequest{Argv: []string{"sh", "-c", "setsid sleep " + long + " & sleep " + long}}, Streams{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	for _, p := range processes() {
		if cmd := commandOf(p.pid); cmd == "sleep\x00"+long+"\x00" {
			t.Errorf("%q lives on", cmd)
		}
	}
	if _, err := r.Run(t.Context(), ExecRequest{Argv: []string{"no-such"}}, Streams{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
	full := failing{}
	if _, err := r.Run(t.Context(), ExecRequest{Argv: []string{"echo", "x"}}, Streams{Stdout: full}); err == nil {
		t.Error("a writer that fails goes unnoticed")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestEnvironment(t *testing.T) {
	env := flatten(environment(Spec{Proxy: true, Env: map[string]string{"PATH": "/mine", "BAD=NAME": "x", "NUL": "a\x00b"}}))
	joined := "\n" + strings.Join(env, "\n") + "\n"
	for _, want := range []string{"\nPATH=/mine\n", "\nHTTPS_PROXY=http://127.0.0.1:1080\n", "\nALL_PROXY=socks5h://127.0.0.1:1080\n", "\nNO_PROXY=localhost,"} {
		if !strings.Contains(joined, want) {
			t.Errorf("%q is missing in %q", want, joined)
		}
	}
	if strings.Contains(joined, "BAD") || strings.Contains(joined, "NUL") {
		t.Error("what the kernel can't carry was passed")
	}
	if strings.Contains(joined, "ANTHROPIC") || strings.Contains(joined, "OPENAI") {
		t.Error("a box without the model has an address of one")
	}
	joined = "\n" + strings.Join(flatten(environment(Spec{ModelToken: "of-this-box"})), "\n") + "\n"
	for _, want := range []string{"\nANTHROPIC_BASE_URL=http://127.0.0.1:1081\n", "\nANTHROPIC_API_KEY=of-this-box\n", "\nOPENAI_BASE_URL=http://127.0.0.1:1081/v1\n", "\nOPENAI_API_KEY=of-this-box\n"} {
		if !strings.Contains(joined, want) {
			t.Errorf("%q is missing in %q", want, joined)
		}
	}
	if strings.Contains(strings.ToLower(joined), "proxy=") {
		t.Error("the model brought a proxy along")
	}
}
