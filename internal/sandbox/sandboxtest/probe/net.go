package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func init() {
	probes["interfaces"] = probeInterfaces
	probes["dial"] = probeDial
	probes["resolve"] = probeResolve
	probes["connect"] = connect
	probes["socks"] = socks
	probes["serve"] = serve
	probes["get"] = probeGet
	probes["abstract"] = probeAbstract
}

func probeInterfaces([]string) error {
	all, err := net.Interfaces()
	for _, i := range all {
		fmt.Println(i.Name)
	}
	return err
}

// probeDial: network address.
func probeDial(args []string) error {
	conn, err := net.DialTimeout(arg(args, 0), arg(args, 1), 3*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if arg(args, 0) == "udp" {
		if _, err := conn.Write([]byte("probe")); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		var b [16]byte
		if _, err := conn.Read(b[:]); err != nil {
			return err
		}
	}
	fmt.Println("connected")
	return nil
}

func probeResolve(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	r := net.Resolver{PreferGo: true}
	if server := arg(args, 1); server != "" {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server)
		}
	}
	addrs, err := r.LookupHost(ctx, arg(args, 0))
	fmt.Println(addrs)
	return err
}

// probeGet: plain HTTP through a proxy: proxy url.
func probeGet(args []string) error {
	conn, err := net.DialTimeout("tcp", arg(args, 0), 3*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", arg(args, 1))
	line, err := bufio.NewReader(conn).ReadString('\n')
	fmt.Print(line)
	if err == nil && !strings.Contains(line, " 200 ") {
		err = errors.New("not 200")
	}
	return err
}

func probeAbstract(args []string) error {
	conn, err := net.DialTimeout("unix", "@"+arg(args, 0), time.Second)
	if err != nil {
		return err
	}
	fmt.Println("connected")
	return conn.Close()
}

// unquote lets a test pass bytes that an argument can't hold.
func unquote(s string) string {
	if u, err := strconv.Unquote(`"` + s + `"`); err == nil {
		return u
	}
	return s
}

// connect asks a proxy for a tunnel and, when it gets one, sends a line and
// prints what comes back: proxy target [line].
func connect(args []string) error {
	conn, err := net.DialTimeout("tcp", arg(args, 0), 3*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	target := unquote(arg(args, 1))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	if res.StatusCode != 200 {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 300))
		return fmt.Errorf("%s %s", res.Status, body)
	}
	return talk(conn, r, arg(args, 2))
}

func talk(conn net.Conn, r *bufio.Reader, line string) error {
	fmt.Fprintf(conn, "%s\n", line)
	answer, err := r.ReadString('\n')
	fmt.Println("tunnel:", strings.TrimSpace(answer))
	return err
}

// socks does the same with SOCKS5: proxy host port [line].
func socks(args []string) error {
	conn, err := net.DialTimeout("tcp", arg(args, 0), 3*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	host := unquote(arg(args, 1))
	port, err := strconv.Atoi(arg(args, 2))
	if err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	var b [10]byte
	if _, err := conn.Write([]byte{5, 1, 0}); err != nil {
		return err
	}
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return err
	}
	req := append([]byte{5, 1, 0, 3, byte(len(host))}, host...)
	if _, err := conn.Write(binary.BigEndian.AppendUint16(req, uint16(port))); err != nil {
		return err
	}
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	if b[1] != 0 {
		return fmt.Errorf("SOCKS reply %d", b[1])
	}
	return talk(conn, r, arg(args, 3))
}

// serve answers HTTP on a port of the loopback: it says which path and host it
// was asked for, and echoes on an upgraded connection.
func serve(args []string) error {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprintf(w, "%s %s", r.Host, r.RequestURI)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
	ln, err := net.Listen("tcp", "127.0.0.1:"+arg(args, 0))
	if err != nil {
		return err
	}
	fmt.Println("listening")
	return http.Serve(ln, h)
}
