package tether_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tether"
)

// pipe returns the two ends of a local socket.
func pipe(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pipe")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	t.Cleanup(func() { _ = ends[0].Close(); _ = ends[1].Close() })
	return ends[0], ends[1]
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s %s", text, r.Method, r.URL.Path) })
}

func twin(t testing.TB, token *tether.Token) *tether.Token {
	t.Helper()
	other, err := tether.ParseToken(token.Encode())
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// sessions connects a host and a guest.
func sessions(t testing.TB, host, guest tether.Options) (*tether.Session, *tether.Session) {
	t.Helper()
	return sessionsOver(t, func(c net.Conn) net.Conn { return c }, host, guest)
}

// sessionsOver connects a host, over a wrapper of its end, and a guest.
func sessionsOver(t testing.TB, over func(net.Conn) net.Conn, host, guest tether.Options) (*tether.Session, *tether.Session) {
	t.Helper()
	a, b := pipe(t)
	a = over(a)
	host.Token = tether.NewToken()
	guest.Token = twin(t, host.Token)
	var g *tether.Session
	var gerr error
	var dialled sync.WaitGroup
	dialled.Go(func() { g, gerr = tether.Dial(context.Background(), b, guest) })
	h, err := tether.Accept(context.Background(), a, host)
	dialled.Wait()
	if err != nil || gerr != nil {
		t.Fatal(err, gerr)
	}
	t.Cleanup(func() { _ = h.Close(); _ = g.Close() })
	return h, g
}

func get(t *testing.T, s *tether.Session, path string) string {
	t.Helper()
	res, err := s.Client().Get("http://box" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestBothWays(t *testing.T) {
	h, g := sessions(t, tether.Options{Handler: say("host")}, tether.Options{Handler: say("guest")})
	if h.ID() != g.ID() || h.ID() == "" {
		t.Errorf("ids %q and %q", h.ID(), g.ID())
	}
	if got := get(t, h, "/a"); got != "guest GET /a" {
		t.Error(got)
	}
	if got := get(t, g, "/b"); got != "host GET /b" {
		t.Error(got)
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if got, want := get(t, g, fmt.Sprint("/", i)), fmt.Sprint("host GET /", i); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	all.Wait()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-h.Done():
	case <-time.After(10 * time.Second):
		t.Error("one end closed, and the other doesn't see it")
	}
	if _, err := h.Client().Get("http://box/"); err == nil {
		t.Error("a closed tether answers")
	}
}

func TestUpgradeAndConnect(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect && r.Host != "good.example:443" {
			http.Error(w, "not for you", http.StatusForbidden)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		if r.Method == http.MethodConnect {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n\r\nearly ")
		} else {
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		}
		_, _ = io.Copy(conn, rw)
	})
	_, g := sessions(t, tether.Options{Handler: handler, Limits: tether.Limits{BodyBytes: 10}}, tether.Options{})
	conn, err := g.Connect(t.Context(), "good.example:443", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	big := bytes.Repeat([]byte("x"), 1<<20) // a tunnel is not a body, so the limit above does not apply to it
	go func() { _, _ = conn.Write(big) }()
	got := make([]byte, 6+len(big))
	if _, err := io.ReadFull(conn, got); err != nil || string(got[:7]) != "early x" {
		t.Errorf("%q %v", got[:7], err)
	}
	if _, err := g.Connect(t.Context(), "bad.example:443", nil); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "not for you") {
		t.Errorf("refused with %v", err)
	}
	for _, target := range []string{"a\x00b:1", "a b:1", "a\r\nX: y", strings.Repeat("a", 400)} {
		if _, err := g.Connect(t.Context(), target, nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q gave %v", target, err)
		}
	}
	req, _ := http.NewRequest(http.MethodGet, "http://box/", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	res, err := g.Transport().RoundTrip(req)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	stream := res.Body.(io.ReadWriteCloser)
	fmt.Fprint(stream, "ping")
	if _, err := io.ReadFull(stream, got[:4]); err != nil || string(got[:4]) != "ping" {
		t.Errorf("%q %v", got[:4], err)
	}
	_ = stream.Close()
}

// TestTokens shows that wrong, replayed, stolen and reflected tokens open nothing.
func TestTokens(t *testing.T) {
	try := func(host, guest *tether.Token) (error, error) {
		a, b := pipe(t)
		var gerr error
		var dialled sync.WaitGroup
		dialled.Go(func() {
			g, err := tether.Dial(context.Background(), b, tether.Options{Token: guest, Limits: tether.Limits{Handshake: time.Second}})
			if gerr = err; err == nil {
				_ = g.Close()
			}
		})
		h, herr := tether.Accept(context.Background(), a, tether.Options{Token: host, Limits: tether.Limits{Handshake: time.Second}})
		dialled.Wait()
		if herr == nil {
			_ = h.Close()
		}
		return herr, gerr
	}
	token := tether.NewToken()
	stolen := twin(t, token)
	if herr, gerr := try(token, twin(t, token)); herr != nil || gerr != nil {
		t.Fatal("the control: the right token does not work", herr, gerr)
	}
	if herr, gerr := try(token, stolen); !fault.Is(herr, fault.Denied) || gerr == nil {
		t.Errorf("a stolen token, after use: host %v, guest %v", herr, gerr)
	}
	if token.Encode() != "" {
		t.Error("a spent token can still be read")
	}
	fresh := tether.NewToken()
	if herr, gerr := try(fresh, tether.NewToken()); !fault.Is(herr, fault.Denied) || gerr == nil {
		t.Errorf("a wrong token: host %v, guest %v", herr, gerr)
	}
	if herr, _ := try(fresh, fresh); !fault.Is(herr, fault.Denied) {
		t.Errorf("a token after a wrong guess: %v", herr)
	}
	// Reflection: the other end sends the host's own bytes back.
	a, b := pipe(t)
	go func() { _, _ = io.Copy(b, b) }()
	if _, err := tether.Accept(t.Context(), a, tether.Options{Token: tether.NewToken(), Limits: tether.Limits{Handshake: time.Second}}); err == nil {
		t.Error("the host was convinced by its own words")
	}
	// Replay: a whole recorded handshake is sent to a host with the same token.
	recorded := record(t)
	a, b = pipe(t)
	go func() { _, _ = io.CopyN(io.Discard, b, 40); _, _ = b.Write(recorded) }()
	if _, err := tether.Accept(t.Context(), a, tether.Options{Token: tokenOf(t, "11"), Limits: tether.Limits{Handshake: time.Second}}); !fault.Is(err, fault.Denied) {
		t.Errorf("a replayed handshake: %v", err)
	}
	for _, bad := range []string{"", "zz", "00", strings.Repeat("0", 65)} {
		if _, err := tether.ParseToken(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func tokenOf(t *testing.T, twoDigits string) *tether.Token {
	t.Helper()
	token, err := tether.ParseToken(strings.Repeat(twoDigits, 32))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// record returns what a guest with token 11… sends to a host in a handshake.
func record(t *testing.T) []byte {
	t.Helper()
	a, b := pipe(t)
	var said []byte
	var done sync.WaitGroup
	done.Go(func() {
		_, _ = tether.Dial(context.Background(), b, tether.Options{Token: tokenOf(t, "11"), Limits: tether.Limits{Handshake: time.Second}})
	})
	_, _ = a.Write(append([]byte("CHOIRT01"), make([]byte, 32)...))
	said = make([]byte, 8+32+32)
	if _, err := io.ReadFull(a, said); err != nil {
		t.Fatal(err)
	}
	_ = a.Close()
	done.Wait()
	return said
}

func TestHandshakeIsBounded(t *testing.T) {
	a, _ := pipe(t) // the other end sends nothing
	_, err := tether.Accept(t.Context(), a, tether.Options{Token: tether.NewToken(), Limits: tether.Limits{Handshake: 50 * time.Millisecond}})
	if !fault.Is(err, fault.Timeout) {
		t.Errorf("got %v", err)
	}
	a, b := pipe(t) // or one byte at a time
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				_, _ = b.Write([]byte("C"))
			}
		}
	}()
	if _, err := tether.Accept(t.Context(), a, tether.Options{Token: tether.NewToken(), Limits: tether.Limits{Handshake: 100 * time.Millisecond}}); !fault.Is(err, fault.Timeout) {
		t.Errorf("got %v", err)
	}
	a, _ = pipe(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tether.Accept(ctx, a, tether.Options{Token: tether.NewToken()}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := tether.Accept(t.Context(), a, tether.Options{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a token: %v", err)
	}
}

// hostile makes a host session and returns the raw connection after the handshake, on which the
// test is the guest.
func hostile(t *testing.T, o tether.Options) (*tether.Session, net.Conn) {
	t.Helper()
	a, b := pipe(t)
	middle, far := pipe(t)
	o.Token = tether.NewToken()
	token := twin(t, o.Token)
	// An honest guest does the handshake through a relay, which then takes over.
	var relay, dialled sync.WaitGroup
	relay.Go(func() { _, _ = io.CopyN(middle, b, 8+32+32) })
	relay.Go(func() { _, _ = io.CopyN(b, middle, 8+32+32) })
	var g *tether.Session
	dialled.Go(func() { g, _ = tether.Dial(context.Background(), far, tether.Options{Token: token}) })
	h, err := tether.Accept(context.Background(), a, o)
	relay.Wait()
	dialled.Wait()
	if err != nil || g == nil {
		t.Fatal(err)
	}
	_ = g.Close()
	t.Cleanup(func() { _ = h.Close() })
	return h, b
}

// TestAWindowIsWhatIsAllowed shows that the other end is told how much of an answer it may
// send unread, and that as much is taken in one frame.
func TestAWindowIsWhatIsAllowed(t *testing.T) {
	const allowed, least = 1 << 20, 256 << 10
	h, raw := hostile(t, tether.Options{Limits: tether.Limits{Window: allowed}})
	answered := make(chan error, 1)
	go func() {
		res, err := h.Client().Get("http://box/")
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		answered <- err
	}()
	opened := make([]byte, 12)
	if _, err := io.ReadFull(raw, opened); err != nil {
		t.Fatal(err)
	}
	stream := binary.BigEndian.Uint32(opened[4:])
	if want := frame(1, 1, stream, allowed-least); !bytes.Equal(opened, want) {
		t.Fatalf("the stream was opened by %v, want %v", opened, want)
	}
	go func() { _, _ = io.Copy(io.Discard, raw) }()
	answer := append([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"), make([]byte, allowed)...)[:allowed]
	if _, err := raw.Write(append(frame(0, 2, stream, allowed), answer...)); err != nil {
		t.Error(err)
	}
	if _, err := raw.Write(frame(1, 4, stream, 0)); err != nil { // the end of the stream
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Error(err, h.Err())
	}
}

func frame(kind byte, flags uint16, stream, length uint32) []byte {
	f := []byte{0, kind}
	f = binary.BigEndian.AppendUint16(f, flags)
	f = binary.BigEndian.AppendUint32(f, stream)
	return binary.BigEndian.AppendUint32(f, length)
}

// TestHostileFrames shows that each of these frames ends the session with an error that says why,
// and has no other effect.
func TestHostileFrames(t *testing.T) {
	pings := bytes.Repeat(frame(2, 1, 0, 7), 200)
	var opens []byte
	for i := range uint32(5000) {
		opens = append(opens, frame(1, 1, 2*i+1, 0)...)
	}
	for name, bytes := range map[string][]byte{
		"huge frame":        frame(0, 1, 1, 1<<31),
		"over the window":   frame(0, 1, 1, 600<<10),
		"unknown version":   append([]byte{9}, frame(0, 1, 1, 0)[1:]...),
		"unknown type":      frame(7, 0, 0, 0),
		"unknown flags":     frame(0, 0xfff0, 1, 0),
		"ping flood":        pings,
		"streams flood":     opens,
		"not frames at all": []byte("GET / HTTP/1.1\r\nHost: box\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			h, raw := hostile(t, tether.Options{Handler: say("host"), Limits: tether.Limits{Streams: 64, Window: 512 << 10, OpensPerSecond: 100}})
			go func() { _, _ = raw.Write(bytes) }()
			go func() { _, _ = io.Copy(io.Discard, raw) }()
			select {
			case <-h.Done():
			case <-time.After(10 * time.Second):
				t.Fatal("the session lives")
			}
			if !fault.Is(h.Err(), fault.Denied) {
				t.Errorf("it ended with %v", h.Err())
			}
		})
	}
}

// TestStreamsAreBounded shows that a guest that leaves streams open can't hold more than its share,
// and that the host serves again once it closes them.
func TestStreamsAreBounded(t *testing.T) {
	const limit = 16
	h, g := sessions(t, tether.Options{Handler: say("host"), Limits: tether.Limits{Streams: limit, ReadHeader: 300 * time.Millisecond}}, tether.Options{Handler: say("guest")})
	var held []net.Conn
	for range 3 * limit {
		s, err := g.Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Write([]byte("GET / HT")) // slow-loris: a request whose header never ends
		held = append(held, s)
	}
	// A stream over the limit ends at once, and the others when their headers took too long.
	for _, s := range held {
		_ = s.SetReadDeadline(time.Now().Add(15 * time.Second))
		said, err := io.ReadAll(s)
		var slow net.Error
		if errors.As(err, &slow) && slow.Timeout() || strings.Contains(string(said), " 200 ") {
			t.Errorf("a stream that never sent its request was kept or answered: %q %v", said, err)
		}
		_ = s.Close()
	}
	if got := get(t, g, "/after"); got != "host GET /after" {
		t.Error(got)
	}
	if got := get(t, h, "/other-way"); got != "guest GET /other-way" {
		t.Error(got)
	}
}

func TestSizesAreBounded(t *testing.T) {
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}
	})
	_, g := sessions(t, tether.Options{Handler: read, Limits: tether.Limits{HeaderBytes: 8 << 10, BodyBytes: 1 << 20}}, tether.Options{})
	do := func(body io.Reader, header int) int {
		req, err := http.NewRequest(http.MethodPost, "http://box/", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Long", strings.Repeat("x", header))
		res, err := g.Client().Do(req)
		if err != nil {
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	if code := do(bytes.NewReader(make([]byte, 1<<20)), 10); code != http.StatusOK {
		t.Errorf("the control: a body of the allowed size gave %d", code)
	}
	if code := do(bytes.NewReader(make([]byte, 2<<20)), 10); code == http.StatusOK {
		t.Error("a body beyond the limit was taken")
	}
	if code := do(io.LimitReader(endless{}, 2<<20), 10); code == http.StatusOK {
		t.Error("a chunked body beyond the limit was taken")
	}
	if code := do(nil, 64<<10); code == http.StatusOK {
		t.Error("a header beyond the limit was taken")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// FuzzFrames shows that the host neither panics nor hangs, whatever a guest sends after the
// handshake.
func FuzzFrames(f *testing.F) {
	f.Add(frame(0, 1, 1, 4))
	f.Add(append(frame(0, 1, 1, 18), "GET / HTTP/1.1\r\n\r\n"...))
	f.Add(append(frame(1, 1, 1, 0), frame(0, 4, 1, 0)...))
	f.Add(frame(2, 1, 0, 1))
	f.Add(frame(3, 0, 0, 2))
	f.Add(append(frame(1, 1, 3, 0), frame(1, 1, 3, 0)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, raw := hostile(t, tether.Options{Handler: say("host")})
		drained := make(chan struct{})
		go func() { defer close(drained); _, _ = io.Copy(io.Discard, raw) }()
		_, _ = raw.Write(data)
		_ = raw.Close()
		select {
		case <-h.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the session outlives its connection")
		}
		<-drained
	})
}

func BenchmarkRequest(b *testing.B) {
	h, _ := sessions(b, tether.Options{}, tether.Options{Handler: say("guest")})
	for range b.N {
		res, err := h.Client().Get("http://box/")
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}

// TestAFrameIsWrittenAtOnce shows that the header and the content of a small frame are written
// together, so that the other end is woken only once for them.
func TestAFrameIsWrittenAtOnce(t *testing.T) {
	written := &writes{}
	h, _ := sessionsOver(t, func(c net.Conn) net.Conn { written.Conn = c; return written }, tether.Options{}, tether.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, err := io.ReadAll(r.Body); err == nil {
			_, _ = w.Write(b)
		}
	})})
	shaken := len(written.all())
	large := strings.Repeat("0123456789abcdef", 64<<10)
	for _, body := range []string{"small", large} {
		res, err := h.Client().Post("http://box/", "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(got) != body {
			t.Fatalf("%d bytes came back as %d, %v", len(body), len(got), err)
		}
	}
	left, small := 0, 0 // bytes of the current frame that are still to be written
	for _, b := range written.all()[shaken:] {
		if left > 0 {
			left -= len(b)
			continue
		}
		const header, data = 12, 0
		if len(b) < header {
			t.Fatalf("%d bytes were written where a frame begins", len(b))
		}
		if b[1] != data {
			continue
		}
		length := int(binary.BigEndian.Uint32(b[8:]))
		if left = length - (len(b) - header); length <= 4<<10 {
			if small++; left != 0 {
				t.Errorf("of a frame of %d bytes %d were written with its header", length, len(b)-header)
			}
		}
	}
	if left != 0 || small == 0 {
		t.Errorf("%d small frames; the last lacks %d bytes", small, left)
	}
}

// writes keeps the pieces in which data were written to a connection.
type writes struct {
	net.Conn
	mu     sync.Mutex
	pieces [][]byte
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.pieces = append(w.pieces, bytes.Clone(p))
	w.mu.Unlock()
	return w.Conn.Write(p)
}

func (w *writes) all() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pieces
}
