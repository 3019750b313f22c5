package guest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tether"
)

const (
	proxyConns   = 128
	proxyGreet   = 10 * time.Second
	proxyRequest = 16 << 10
)

// startProxy listens on the box's loopback. It decides nothing: every well-formed request
// is passed to the host, which decides on each connection.
func startProxy(ctx context.Context, session *tether.Session) (stop func(), err error) {
	ln, err := net.Listen("tcp", ProxyAddr)
	if err != nil {
		return nil, fmt.Errorf("start the box's proxy: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	slots := make(chan struct{}, proxyConns)
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				select { // out of descriptors
				case <-time.After(50 * time.Millisecond):
					continue
				case <-ctx.Done():
					return
				}
			}
			select {
			case slots <- struct{}{}:
			default:
				_ = conn.Close()
				continue
			}
			all.Go(func() {
				defer func() { <-slots }()
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				defer stop()
				defer conn.Close()
				proxyConn(ctx, conn, session)
			})
		}
	})
	return func() {
		cancel()
		_ = ln.Close()
		all.Wait()
	}, nil
}

func proxyConn(ctx context.Context, conn net.Conn, session *tether.Session) {
	_ = conn.SetDeadline(time.Now().Add(proxyGreet))
	in := bufio.NewReaderSize(io.LimitReader(conn, proxyRequest), proxyRequest)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	speak := proxyHTTP
	if first[0] == 5 {
		speak = proxySOCKS
	}
	target, answer, err := speak(conn, in)
	if err != nil {
		return // the client was told, or disconnected
	}
	_ = conn.SetDeadline(time.Time{})
	far, err := session.Connect(ctx, target, nil)
	if answer(err) != nil || err != nil {
		if far != nil {
			_ = far.Close()
		}
		return
	}
	defer far.Close()
	early, _ := in.Peek(in.Buffered()) // what the client sent before the answer
	if _, err := far.Write(early); err != nil {
		return
	}
	splice(conn, far)
}

// splice copies in both directions until both are done, or one fails.
func splice(a, b net.Conn) {
	var both sync.WaitGroup
	one := func(dst, src net.Conn) {
		_, err := io.Copy(dst, src)
		if half, ok := dst.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
			return
		}
		_ = dst.Close()
	}
	both.Go(func() { one(a, b) })
	both.Go(func() { one(b, a) })
	both.Wait()
}

var errAnswered = errors.New("refused")

func proxyHTTP(conn net.Conn, in *bufio.Reader) (string, func(error) error, error) {
	say := func(status int, text string) error {
		_, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, http.StatusText(status), len(text), text)
		return err
	}
	req, err := http.ReadRequest(in)
	if err != nil {
		return "", nil, errors.Join(errAnswered, say(http.StatusBadRequest, "This is not an HTTP request.\n"))
	}
	if req.Method != http.MethodConnect {
		return "", nil, errors.Join(errAnswered, say(http.StatusForbidden, "Plain HTTP does not leave the box; use https.\n"))
	}
	target, err := checkTarget(req.RequestURI)
	if err != nil {
		return "", nil, errors.Join(errAnswered, say(http.StatusBadRequest, err.Error()+"\n"))
	}
	return target, func(err error) error {
		if err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
			return err
		}
		status := http.StatusBadGateway
		if fault.Is(err, fault.Denied) {
			status = http.StatusForbidden
		}
		return say(status, err.Error()+"\n")
	}, nil
}

// SOCKS5 (RFC 1928) replies.
const (
	socksOK          = 0
	socksFailed      = 1
	socksNotAllowed  = 2
	socksUnreachable = 4
	socksNoCommand   = 7
	socksNoAddress   = 8
)

func proxySOCKS(conn net.Conn, in *bufio.Reader) (string, func(error) error, error) {
	reply := func(code byte) error {
		_, err := conn.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
		return err
	}
	var b [256]byte
	if _, err := io.ReadFull(in, b[:2]); err != nil {
		return "", nil, err
	}
	methods := b[2 : 2+min(int(b[1]), 254)]
	if _, err := io.ReadFull(in, methods); err != nil {
		return "", nil, err
	}
	if !strings.Contains(string(methods), "\x00") {
		_, err := conn.Write([]byte{5, 0xff})
		return "", nil, errors.Join(errAnswered, err)
	}
	if _, err := conn.Write([]byte{5, 0}); err != nil {
		return "", nil, err
	}
	if _, err := io.ReadFull(in, b[:4]); err != nil {
		return "", nil, err
	}
	if b[0] != 5 || b[1] != 1 {
		return "", nil, errors.Join(errAnswered, reply(socksNoCommand))
	}
	var host string
	switch b[3] {
	case 1, 4:
		n := 4
		if b[3] == 4 {
			n = 16
		}
		if _, err := io.ReadFull(in, b[:n]); err != nil {
			return "", nil, err
		}
		addr, _ := netip.AddrFromSlice(b[:n])
		host = addr.String()
	case 3:
		if _, err := io.ReadFull(in, b[:1]); err != nil {
			return "", nil, err
		}
		n := int(b[0])
		if _, err := io.ReadFull(in, b[:n]); err != nil {
			return "", nil, err
		}
		host = string(b[:n])
	default:
		return "", nil, errors.Join(errAnswered, reply(socksNoAddress))
	}
	if _, err := io.ReadFull(in, b[:2]); err != nil {
		return "", nil, err
	}
	target, err := checkTarget(net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(b[:2])))))
	if err != nil {
		return "", nil, errors.Join(errAnswered, reply(socksNoAddress))
	}
	return target, func(err error) error {
		switch {
		case err == nil:
			return reply(socksOK)
		case fault.Is(err, fault.Denied):
			return reply(socksNotAllowed)
		case fault.Is(err, fault.Unavailable):
			return reply(socksUnreachable)
		}
		return reply(socksFailed)
	}, nil
}

// checkTarget lets only a possible host and port pass to the host, so that no two parsers
// can read it differently: no NUL, no control or non-ASCII characters, nothing oversized.
func checkTarget(target string) (string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return "", errors.New("give host and port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	if host == "" || len(host) > 253 {
		return "", errors.New("the host is empty or longer than 253 characters")
	}
	for i := range len(host) {
		switch c := host[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		case c == ':' && strings.Count(host, ":") >= 2: // IPv6
		default:
			return "", fmt.Errorf("the host holds the character %q", c)
		}
	}
	return target, nil
}
