package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/fault/httpstatus"
)

// Client is the host's view of a box's guest. The guest of a box that runs agent code is
// ours, but what it reports about that code must not be trusted: output and exit codes are
// the command's own.
type Client struct{ transport http.RoundTripper }

// NewClient returns a Client over rt, a tether's Transport.
func NewClient(rt http.RoundTripper) *Client { return &Client{transport: rt} }

func (c *Client) do(ctx context.Context, method, path string, body io.Reader, set func(*http.Request)) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://box", body)
	if err != nil {
		return nil, fault.New("guest", fault.Invalid, "", err)
	}
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil, fault.New("guest", fault.Invalid, "", err)
	}
	req.URL.Path, req.URL.RawPath, req.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
	if set != nil {
		set(req)
	}
	res, err := c.transport.RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fault.New("guest", fault.Unavailable, "Try again; what was done in the box until then stays.", fmt.Errorf("the connection to the box broke: %w", err))
	}
	return res, nil
}

// problem turns an answer that is an error back into a fault.
func problem(op string, res *http.Response) error {
	defer res.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // the part of the reason that arrived is enough
	var p Problem
	if json.Unmarshal(data, &p) == nil && p.Code != "" {
		return fault.New(op, p.Code, p.Hint, errors.New(p.Message))
	}
	return fault.New(op, httpstatus.Code(res.StatusCode), "", fmt.Errorf("%s: %.200s", res.Status, bytes.TrimSpace(data)))
}

// Call posts in as JSON to path and decodes the answer into out; with in nil it
// is a GET. out may be nil. An answer holds at most 64 MiB. The guest's error
// codes come back as they were.
func (c *Client) Call(ctx context.Context, path string, in, out any) error {
	op := "guest" + path
	method, body := http.MethodGet, io.Reader(nil)
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fault.New(op, fault.Invalid, "", err)
		}
		method, body = http.MethodPost, bytes.NewReader(data)
	}
	res, err := c.do(ctx, method, path, body, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") })
	if err != nil {
		return fault.Wrap(op, err)
	}
	if res.StatusCode >= 300 {
		return problem(op, res)
	}
	defer res.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxKeep)).Decode(out); err != nil {
		if ctx.Err() != nil {
			return fault.Wrap(op, ctx.Err())
		}
		return fault.New(op, fault.Unavailable, "", fmt.Errorf("read the answer: %w", err))
	}
	return nil
}

// Health asks whether the guest answers.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	err := c.Call(ctx, "/health", nil, &h)
	return h, err
}

// Signal sends a signal to everything in the box but the guest.
func (c *Client) Signal(ctx context.Context, sig syscall.Signal) error {
	return c.Call(ctx, "/signal", map[string]int{"signal": int(sig)}, nil)
}

// Clear ends everything in the box but the guest. When it has returned, nothing of
// what was run is left, and it says whether the box is as fresh as it began.
func (c *Client) Clear(ctx context.Context) (Cleared, error) {
	var out Cleared
	err := c.Call(ctx, "/clear", struct{}{}, &out)
	return out, err
}

// open starts a command and returns its stream of frames.
func (c *Client) open(ctx context.Context, op, path string, in any) (io.ReadWriteCloser, error) {
	data, err := json.Marshal(in)
	if err != nil {
		return nil, fault.New(op, fault.Invalid, "", err)
	}
	res, err := c.do(ctx, http.MethodPost, path, bytes.NewReader(data), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", upgradeName)
	})
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		return nil, problem(op, res)
	}
	stream, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		_ = res.Body.Close()
		return nil, fault.New(op, fault.Internal, "", errors.New("the transport can't upgrade"))
	}
	return stream, nil
}

// Exec runs a command in the box and copies its streams until it has ended. Ending ctx
// kills the command and what it started. The error is about the box and the request; how
// the command ended is in Exit. Errors: fault.NotFound (no such command), fault.Denied (it
// can't be run), fault.Invalid (for example, no such directory), fault.Unavailable (the box
// ended).
func (c *Client) Exec(ctx context.Context, req ExecRequest, s Streams) (Exit, error) {
	const op = "guest.Exec"
	req.Stdin = s.Stdin != nil
	stream, err := c.open(ctx, op, "/exec", req)
	if err != nil {
		return Exit{}, err
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	defer stop()
	room := newCredit()
	defer room.end()
	out := &frameWriter{w: stream}
	if s.Signals != nil {
		ended := make(chan struct{})
		var passing sync.WaitGroup
		defer passing.Wait()
		defer close(ended)
		passing.Go(func() {
			for {
				select {
				case sig := <-s.Signals:
					if out.frame(frameSignal, []byte{byte(sig)}) != nil {
						return
					}
				case <-ended:
					return
				}
			}
		})
	}
	if s.Stdin != nil {
		// It is not waited for: s.Stdin may block as long as its owner likes, and what is
		// written after the end is dropped.
		go func() { copyInput(out, s.Stdin, room) }()
	}
	exit, err := receive(stream, s, room)
	if exit.Refused != "" {
		return Exit{}, fault.New(op, fault.Denied, "", errors.New(exit.Refused))
	}
	if ctx.Err() != nil {
		return exit, fault.Wrap(op, ctx.Err())
	}
	return exit, fault.Wrap(op, err)
}

func copyInput(out *frameWriter, in io.Reader, room *credit) {
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 && sendInput(out, buf[:n], room) != nil {
			return
		}
		if err != nil {
			_ = out.frame(frameStdin, nil)
			return
		}
	}
}

// sendInput sends p as the window allows.
func sendInput(out *frameWriter, p []byte, room *credit) error {
	for len(p) > 0 {
		n := room.take(len(p))
		if n == 0 {
			return io.ErrClosedPipe
		}
		if err := out.frame(frameStdin, p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func taken(p []byte, room *credit) error {
	if len(p) != 4 {
		return errors.New("a bad frame")
	}
	room.give(int(min(binary.BigEndian.Uint32(p), inputWindow)))
	return nil
}

func receive(stream io.Reader, s Streams, room *credit) (Exit, error) {
	in := bufio.NewReaderSize(stream, 64<<10)
	buf := make([]byte, maxFrame)
	to := func(w io.Writer, p []byte) error {
		if w == nil {
			return nil
		}
		_, err := w.Write(p)
		return err
	}
	for {
		kind, p, err := readFrame(in, buf)
		if err != nil {
			return Exit{}, fault.New("", fault.Unavailable, "", fmt.Errorf("the box ended before the command: %w", err))
		}
		switch kind {
		case frameTaken:
			err = taken(p, room)
		case frameStdout:
			err = to(s.Stdout, p)
		case frameStderr:
			err = to(s.Stderr, p)
		case frameOutGap, frameErrGap:
			if len(p) != 8 {
				return Exit{}, errors.New("a bad frame")
			}
			w := s.Stdout
			if kind == frameErrGap {
				w = s.Stderr
			}
			err = to(w, []byte(GapLine(int64(binary.BigEndian.Uint64(p)))))
		case frameExit:
			var exit Exit
			if err := json.Unmarshal(p, &exit); err != nil {
				return Exit{}, err
			}
			return exit, nil
		default:
			return Exit{}, fmt.Errorf("a frame of unknown type %q", kind)
		}
		if err != nil {
			return Exit{}, err
		}
	}
}

// Output runs a command and returns its stdout and its stderr; of each, max bytes at the
// beginning and at the end are kept.
func (c *Client) Output(ctx context.Context, max int64, argv ...string) (stdout, stderr []byte, exit Exit, err error) {
	var out, eout bytes.Buffer
	exit, err = c.Exec(ctx, ExecRequest{Argv: argv, HeadBytes: max, TailBytes: max}, Streams{Stdout: &out, Stderr: &eout})
	return out.Bytes(), eout.Bytes(), exit, err
}

// PTY is a command on a terminal in the box. Read returns the terminal's output, and io.EOF
// after the command's end; Wait, to be called after that, returns how it ended.
type PTY struct {
	stream io.ReadWriteCloser
	in     *bufio.Reader
	out    *frameWriter
	room   *credit
	stop   func() bool
	buf    []byte
	rest   []byte
	once   sync.Once
	exit   Exit
	err    error
}

// PTY starts a command on a terminal. Ending ctx, like Close, kills it.
func (c *Client) PTY(ctx context.Context, req PTYRequest) (*PTY, error) {
	stream, err := c.open(ctx, "guest.PTY", "/pty", req)
	if err != nil {
		return nil, err
	}
	return &PTY{
		stream: stream, in: bufio.NewReaderSize(stream, 64<<10), out: &frameWriter{w: stream}, room: newCredit(),
		buf: make([]byte, maxFrame), stop: context.AfterFunc(ctx, func() { _ = stream.Close() }),
	}, nil
}

func (p *PTY) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		kind, data, err := readFrame(p.in, p.buf)
		switch {
		case err != nil:
			p.err = fault.New("guest.PTY", fault.Unavailable, "", err)
		case kind == frameStdout:
			p.rest = data
		case kind == frameTaken:
			p.err = taken(data, p.room)
		case kind == frameExit:
			if p.err = json.Unmarshal(data, &p.exit); p.err == nil {
				p.err = io.EOF
			}
		default:
			p.err = fault.New("guest.PTY", fault.Unavailable, "", fmt.Errorf("a frame of unknown type %q", kind))
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Write sends b as typed input. While the command doesn't read, it blocks until Close.
func (p *PTY) Write(b []byte) (int, error) {
	if err := sendInput(p.out, b, p.room); err != nil {
		return 0, fault.New("guest.PTY", fault.Unavailable, "", err)
	}
	return len(b), nil
}

// Resize sets the terminal's size in characters.
func (p *PTY) Resize(rows, cols uint16) error {
	return p.out.frame(frameResize, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, rows), cols))
}

// Signal sends a signal to the terminal's session leader and its group.
func (p *PTY) Signal(sig syscall.Signal) error { return p.out.frame(frameSignal, []byte{byte(sig)}) }

// Wait returns how the command ended, once Read has returned io.EOF.
func (p *PTY) Wait() (Exit, error) {
	if errors.Is(p.err, io.EOF) {
		return p.exit, nil
	}
	if p.err != nil {
		return Exit{}, p.err
	}
	return Exit{}, fault.New("guest.PTY", fault.Invalid, "", errors.New("still running"))
}

// Close hangs up the terminal; everything on it is killed.
func (p *PTY) Close() error {
	p.once.Do(func() {
		p.stop()
		p.room.end()
		_ = p.stream.Close()
	})
	return nil
}

// Forward sends requests to a port of the box's loopback; the Host header and the path are
// passed unchanged. Upgrades work as with any http.RoundTripper.
func (c *Client) Forward(port int) http.RoundTripper { return forwarder{c.transport, port} }

type forwarder struct {
	transport http.RoundTripper
	port      int
}

func (f forwarder) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	if out.Host == "" {
		out.Host = req.URL.Host
	}
	prefix := "/forward/" + strconv.Itoa(f.port)
	path, raw := out.URL.Path, out.URL.EscapedPath()
	if !strings.HasPrefix(path, "/") {
		path, raw = "/"+path, "/"+raw
	}
	out.URL.Path, out.URL.RawPath = prefix+path, prefix+raw
	out.URL.Scheme, out.URL.Host = "http", "box"
	return f.transport.RoundTrip(out)
}

// ReadFile opens a file below the box's root. The caller closes it.
func (c *Client) ReadFile(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	res, err := c.do(ctx, http.MethodGet, "/files/"+escape(name), nil, nil)
	if err != nil {
		return nil, 0, fault.Wrap("guest.ReadFile", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, 0, problem("guest.ReadFile", res)
	}
	return res.Body, res.ContentLength, nil
}

// WriteFile replaces or makes a file below the box's root, with the directories that lead
// to it.
func (c *Client) WriteFile(ctx context.Context, name string, r io.Reader, mode os.FileMode) error {
	res, err := c.do(ctx, http.MethodPut, "/files/"+escape(name), r, func(req *http.Request) {
		req.Header.Set("X-Choir-Mode", strconv.FormatUint(uint64(mode.Perm()), 8))
	})
	if err != nil {
		return fault.Wrap("guest.WriteFile", err)
	}
	if res.StatusCode >= 300 {
		return problem("guest.WriteFile", res)
	}
	return res.Body.Close()
}

func escape(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
