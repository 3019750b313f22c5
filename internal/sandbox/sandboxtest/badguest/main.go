// Badguest is a guest that was taken over: it shakes hands, and then attacks its
// host over the tether in the way that the box's environment names.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	_ "choir.dev/choiros/internal/guest/early" // which seals the box

	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox/local/launch"
	"choir.dev/choiros/internal/tether"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "launch" {
		os.Exit(launch.Main(os.Args[2:]))
	}
	if len(os.Args) != 3 || os.Args[1] != "guest" {
		os.Stderr.WriteString("usage: badguest guest KIND\n")
		os.Exit(2)
	}
	var spec guest.Spec
	if err := json.NewDecoder(os.NewFile(guest.SpecFD, "spec")).Decode(&spec); err != nil {
		os.Exit(3)
	}
	token, err := tether.ParseToken(spec.Token)
	if err != nil {
		os.Exit(3)
	}
	raw, err := net.FileConn(os.NewFile(guest.TetherFD, "tether"))
	if err != nil {
		os.Exit(3)
	}
	way := spec.Env["WAY"]
	switch way {
	case "hold-streams":
		holdStreams(raw, token)
		return
	case "ask":
		ask(raw, token)
		return
	}
	shakeHands(raw, token)
	go func() { _, _ = io.Copy(io.Discard, raw) }()
	for {
		if _, err := raw.Write(frames(way)); err != nil {
			time.Sleep(time.Hour)
		}
	}
}

// shakeHands lets an honest end do it through a relay, and takes over.
func shakeHands(raw net.Conn, token *tether.Token) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		os.Exit(3)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		if ends[i], err = net.FileConn(os.NewFile(uintptr(fd), "relay")); err != nil {
			os.Exit(3)
		}
	}
	go func() { _, _ = io.CopyN(ends[0], raw, 8+32+32) }()
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.CopyN(raw, ends[0], 8+32+32) }()
	if _, err := tether.Dial(context.Background(), ends[1], tether.Options{Token: token}); err != nil {
		os.Exit(3)
	}
	<-done
}

var next uint32 = 1

func frames(way string) []byte {
	frame := func(kind byte, flags uint16, stream, length uint32) []byte {
		f := binary.BigEndian.AppendUint16([]byte{0, kind}, flags)
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(f, stream), length)
	}
	switch way {
	case "huge-frame":
		return frame(0, 1, 1, 1<<31)
	case "ping-flood":
		return frame(2, 1, 0, 7)
	case "stream-flood":
		next += 2
		return frame(1, 1, next, 0)
	case "garbage":
		return []byte(strings.Repeat("GET / HTTP/1.1\r\nHost: box\r\n\r\n", 10))
	}
	time.Sleep(time.Hour)
	return nil
}

// holdStreams opens streams and sends each a byte of a request now and then.
func holdStreams(raw net.Conn, token *tether.Token) {
	s, err := tether.Dial(context.Background(), raw, tether.Options{Token: token})
	if err != nil {
		os.Exit(3)
	}
	var held []net.Conn
	for range 1000 {
		c, err := s.Stream(context.Background())
		if err != nil {
			break
		}
		held = append(held, c)
	}
	for {
		for _, c := range held {
			_, _ = c.Write([]byte("G"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ask has the host begin tasks, whoever it takes the box for, as often as it can.
func ask(raw net.Conn, token *tether.Token) {
	s, err := tether.Dial(context.Background(), raw, tether.Options{Token: token})
	if err != nil {
		os.Exit(3)
	}
	for {
		if resp, err := s.Client().Post("http://box/tasks", "application/json", strings.NewReader("{}")); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
}
