package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"testing"

	"choir.dev/choiros/internal/fault"
)

// has reports whether the machine has an address.
func has(home netip.Addr) bool {
	ln, err := net.Listen("tcp", netip.AddrPortFrom(home, 0).String())
	return err == nil && ln.Close() == nil
}

// TestAttack20_ThePortIsOursWhereverBrowsersLook: a browser tries ::1 for console.choir.localhost
// before 127.0.0.1, so another user of the machine who listens there would get the claim link and
// the session's cookie.
func TestAttack20_ThePortIsOursWhereverBrowsersLook(t *testing.T) {
	ln, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ours") })}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	port := ln.Addr().(*net.TCPAddr).AddrPort().Port()
	for _, home := range homes {
		if !has(home) {
			t.Logf("this machine has no %s", home)
			continue
		}
		addr := netip.AddrPortFrom(home, port).String()
		if theirs, err := net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
			if err == nil {
				theirs.Close() // this only tried whether the address is free
			}
			t.Errorf("somebody else can listen at %s: %v", addr, err)
		}
		res, err := http.Get("http://" + addr)
		if err != nil {
			t.Error(err)
			continue
		}
		b, err := io.ReadAll(res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil || string(b) != "ours" {
			t.Errorf("%s answers %q, %v", addr, b, err)
		}
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	for _, home := range homes {
		again, err := net.Listen("tcp", netip.AddrPortFrom(home, port).String())
		if has(home) && err != nil {
			t.Errorf("%s was not given back: %v", home, err)
		} else if err == nil {
			again.Close() // this only tried whether the address is free
		}
	}
}

// TestAPortThatIsHalfTakenIsRefused shows that a port that is in use at one of the addresses is
// refused when it was asked for, and that another port is taken when the system chose it.
func TestAPortThatIsHalfTakenIsRefused(t *testing.T) {
	for i, home := range homes {
		ours := homes[1-i]
		if !has(home) || !has(ours) {
			t.Logf("this machine has not both %s and %s", home, ours)
			continue
		}
		theirs, err := net.Listen("tcp", netip.AddrPortFrom(home, 0).String())
		if err != nil {
			t.Fatal(err)
		}
		addr := net.JoinHostPort(ours.String(), strconv.Itoa(theirs.Addr().(*net.TCPAddr).Port))
		ln, err := listen(addr)
		if err == nil {
			ln.Close() // listening should have failed
		}
		if !fault.Is(err, fault.InUse) || fault.HintOf(err) == "" {
			t.Errorf("%s while %s is taken: %v", addr, theirs.Addr(), err)
		}
		if again, err := net.Listen("tcp", addr); err != nil {
			t.Errorf("%s was not given back: %v", addr, err)
		} else {
			again.Close() // this only tried whether the address is free
		}
		theirs.Close() // nobody connected
	}
}

// scarce is a listener whose first accepts fail as they do when the kernel has no epoll
// watch left.
type scarce struct {
	net.Listener
	refusals int
}

func (s *scarce) Accept() (net.Conn, error) {
	if s.refusals > 0 {
		s.refusals--
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.ENOSPC}
	}
	return s.Listener.Accept()
}

// TestListeningGoesOnWithoutWatches shows that no server ends when a box has used up the epoll
// watches.
func TestListeningGoesOnWithoutWatches(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := together([]net.Listener{&scarce{ln, 3}})
	defer all.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := all.Accept()
	if err != nil {
		t.Fatalf("nobody listens any more: %v", err)
	}
	far.Close()
}
