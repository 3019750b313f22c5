package bus

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"choir.dev/choiros/internal/bus/embedded"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

const (
	connectTimeout      = 10 * time.Second
	clientWriteTimeout  = 30 * time.Second
	bridgesPerPrincipal = 64
)

// Serve passes one client's raw NATS protocol between conn and the server until either side
// ends, ctx ends or the bus closes; it closes conn. The caller has checked session, Origin
// and Host.
//
// The first thing that reaches the server is a CONNECT with valid credentials, and after
// that only PUB, HPUB, SUB, UNSUB, PING and PONG. They are written anew from their parsed
// fields, so that the server can't parse them differently. A PUB may name only a reply
// subject under the credentials' own inbox. A violation ends the connection with
// fault.Denied; a client that disconnects is no error.
func (b *Bus) Serve(ctx context.Context, conn net.Conn) error {
	const op = "bus.Serve"
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errors.Join(fault.New(op, fault.Unavailable, "", errors.New("the bus is closed")), conn.Close())
	}
	b.bridges.Add(1)
	b.mu.Unlock()
	defer b.bridges.Done()

	inner, err := b.backend.Client()
	if err != nil {
		return errors.Join(fault.Wrap(op, err), conn.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopBus := context.AfterFunc(b.ctx, cancel)
	defer stopBus()
	// Closing both connections ends the two copying loops below.
	shut := context.AfterFunc(ctx, func() { _ = conn.Close(); _ = inner.Close() })
	defer shut()

	down := make(chan error, 1)
	go func() {
		defer cancel()
		_, err := io.Copy(deadlineWriter{conn}, inner)
		down <- err
	}()
	f := &filter{bus: b, in: bufio.NewReaderSize(conn, embedded.MaxLine+2), out: bufio.NewWriterSize(inner, 32<<10), conn: conn}
	upErr := f.run()
	if fault.Is(upErr, fault.Denied) {
		// The client is told why if it still reads; what matters is that it is
		// disconnected.
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, "-ERR 'Permissions Violation'\r\n")
	}
	cancel()
	f.release()
	downErr := <-down
	_, _ = conn.Close(), inner.Close()
	if fault.Is(upErr, fault.Denied) {
		return fault.Wrap(op, upErr)
	}
	for _, err := range []error{upErr, downErr} {
		if err != nil && !ended(err) && ctx.Err() == nil {
			return fault.Wrap(op, err)
		}
	}
	return nil
}

// ended reports whether err only means that one side has disconnected.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrDeadlineExceeded)
}

// deadlineWriter sets a deadline for each write, for clients that do not read.
type deadlineWriter struct{ conn net.Conn }

func (w deadlineWriter) Write(p []byte) (int, error) {
	if err := w.conn.SetWriteDeadline(time.Now().Add(clientWriteTimeout)); err != nil {
		return 0, err
	}
	return w.conn.Write(p)
}

// filter reads a client's operations and forwards the allowed ones.
type filter struct {
	bus       *Bus
	in        *bufio.Reader
	out       *bufio.Writer
	conn      net.Conn
	principal string // set by CONNECT
	inbox     string
	expires   time.Time // when the credentials expire; zero: they do not
}

func denied(format string, args ...any) error {
	return fault.New("", fault.Denied, "", fmt.Errorf(format, args...))
}

func (f *filter) run() error {
	if err := f.conn.SetReadDeadline(time.Now().Add(connectTimeout)); err != nil {
		return err
	}
	for {
		line, err := f.in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return denied("a protocol line is longer than %d bytes", embedded.MaxLine)
		}
		if err != nil {
			return err
		}
		text, ok := strings.CutSuffix(string(line), "\r\n")
		if !ok {
			return denied("a protocol line does not end in CR LF")
		}
		if err := f.operation(text); err != nil {
			return err
		}
		if f.in.Buffered() == 0 {
			if err := f.out.Flush(); err != nil {
				return err
			}
		}
	}
}

func (f *filter) operation(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	verb = strings.ToUpper(verb)
	if (verb == "CONNECT") != (f.principal == "") {
		return denied("CONNECT must come first, and once")
	}
	if verb == "CONNECT" {
		return f.connect(rest)
	}
	// The server ends such connections too, but by a timer that does not run while the
	// machine is suspended and that ignores changes of the clock. A client must learn that
	// its credentials have expired, so that it reconnects with new ones.
	if !f.expires.IsZero() && !f.expires.After(f.bus.now()) {
		return denied("the credentials have expired")
	}
	for i := range len(line) {
		if line[i] < ' ' && line[i] != '\t' || line[i] == 0x7f {
			return denied("a protocol line contains a control character")
		}
	}
	args := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '\t' })
	switch verb {
	case "PING", "PONG":
		if len(args) != 0 {
			return denied("%s takes no arguments", verb)
		}
		return f.write(verb)
	case "SUB":
		if len(args) != 2 && len(args) != 3 {
			return denied("SUB takes a subject, perhaps a queue, and an id")
		}
		return f.write(verb, args...)
	case "UNSUB":
		if len(args) != 1 && len(args) != 2 {
			return denied("UNSUB takes an id and perhaps a count")
		}
		return f.write(verb, args...)
	case "PUB":
		return f.publish(verb, args, 1)
	case "HPUB":
		return f.publish(verb, args, 2)
	}
	return denied("%.20q is not an operation for clients", verb)
}

// publish checks the reply subject and the n sizes, and forwards the message.
func (f *filter) publish(verb string, args []string, n int) error {
	if len(args) != n+1 && len(args) != n+2 {
		return denied("%s has %d arguments", verb, len(args))
	}
	if len(args) == n+2 && !strings.HasPrefix(args[1], f.inbox) && !defence.Off(defence.BusReplies) {
		return denied("the reply subject %.100q is not under %s", args[1], f.inbox)
	}
	last := -1
	for _, a := range args[len(args)-n:] {
		size, err := strconv.Atoi(a)
		if err != nil || size < 0 || a[0] == '+' || size < last || size > clientPayload && !defence.Off(defence.BusSizes) {
			return denied("%s has size %.20q; at most %d bytes are allowed", verb, a, clientPayload)
		}
		last = size
	}
	if err := f.write(verb, args...); err != nil {
		return err
	}
	if _, err := io.CopyN(f.out, f.in, int64(last)); err != nil {
		return err
	}
	var end [2]byte
	if _, err := io.ReadFull(f.in, end[:]); err != nil {
		return err
	}
	if end != [2]byte{'\r', '\n'} {
		return denied("a payload is longer than it says")
	}
	_, err := f.out.Write(end[:])
	return err
}

func (f *filter) write(verb string, args ...string) error {
	_, err := f.out.WriteString(strings.Join(append([]string{verb}, args...), " ") + "\r\n")
	return err
}

// connectFields are the options that a client may set; others are dropped.
type connectFields struct {
	Verbose      bool   `json:"verbose"`
	Pedantic     bool   `json:"pedantic"`
	JWT          string `json:"jwt"`
	Sig          string `json:"sig"`
	Name         string `json:"name,omitempty"`
	Lang         string `json:"lang,omitempty"`
	Version      string `json:"version,omitempty"`
	Protocol     int    `json:"protocol"`
	Echo         *bool  `json:"echo,omitempty"`
	Headers      bool   `json:"headers"`
	NoResponders bool   `json:"no_responders"`
}

func (f *filter) connect(options string) error {
	var c connectFields
	if err := json.Unmarshal([]byte(options), &c); err != nil {
		return denied("CONNECT is not valid JSON")
	}
	claims, err := jwt.DecodeUserClaims(c.JWT)
	if err != nil {
		return denied("CONNECT carries no user credentials")
	}
	if f.expires, err = f.bus.attach(claims.Name, claims.Subject); err != nil {
		return err
	}
	f.principal, f.inbox = claims.Name, "_INBOX."+claims.Name+"."
	encoded, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode CONNECT: %w", err)
	}
	if err := f.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	return f.write("CONNECT", string(encoded))
}

func (f *filter) release() {
	if f.principal != "" {
		f.bus.detach(f.principal)
	}
}

// attach counts a connection of principal, which must have valid credentials for the key,
// and returns when these expire. The server checks the signature.
func (b *Bus) attach(principal, user string) (expires time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if defence.Off(defence.BusLive) {
		b.attached[principal]++
		return time.Time{}, nil
	}
	now := b.now()
	for _, g := range b.grants[principal] {
		if g.user != user || !g.expires.After(now) {
			continue
		}
		if b.attached[principal] >= bridgesPerPrincipal {
			return time.Time{}, denied("%s has %d connections open", principal, bridgesPerPrincipal)
		}
		b.attached[principal]++
		return g.expires, nil
	}
	return time.Time{}, denied("the credentials are not live")
}

func (b *Bus) detach(principal string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attached[principal]--; b.attached[principal] <= 0 {
		delete(b.attached, principal)
	}
}
