package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// homes are the addresses at which browsers and our own client look for a name under
// .localhost: at both, and at the second one first. If only one of the two were ours, any
// user of the machine could take the other. Their program would then be the console to the
// browser, and would be sent the claim link and the session's cookie.
var homes = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}

// listenTries is how many ports chosen by the system are tried until one is free at all
// addresses.
const listenTries = 32

// listen listens at addr and at the same port of every other address in homes where
// browsers would look for it. The listener's own address is addr's.
func listen(addr string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fault.New("up", fault.Invalid, "Choose another address with --listen.", err)
	}
	for try := 1; ; try++ {
		ln, err := listenAt(at)
		if at.Port() == 0 && try < listenTries && errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return nil, fault.New("up", fault.InUse, "Stop what uses it, or choose another with --listen 127.0.0.1:0.", err)
		case err != nil:
			return nil, fault.New("up", fault.Invalid, "Choose another address with --listen.", err)
		}
		return ln, nil
	}
}

func listenAt(at netip.AddrPort) (net.Listener, error) {
	first, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, err
	}
	port := first.Addr().(*net.TCPAddr).AddrPort().Port()
	all := []net.Listener{first}
	for _, home := range homes {
		if home == at.Addr() || defence.Off(defence.ListenBoth) {
			continue
		}
		one, err := net.Listen("tcp", netip.AddrPortFrom(home, port).String())
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			continue // the machine has no such address, so nobody can listen there
		}
		if err != nil {
			errs := []error{fmt.Errorf("whoever listens there would be taken for the console: %w", err)}
			for _, ln := range all {
				errs = append(errs, ln.Close())
			}
			return nil, errors.Join(errs...)
		}
		all = append(all, one)
	}
	return together(all), nil
}

// acceptAgain is the pause after an accept that failed because the kernel was short of
// something.
const acceptAgain = 20 * time.Millisecond

// listeners makes several listeners one.
type listeners struct {
	all      []net.Listener
	accepted chan accepted
	closed   chan struct{}
	once     sync.Once
	err      error
	wg       sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

func together(all []net.Listener) *listeners {
	l := &listeners{all: all, accepted: make(chan accepted), closed: make(chan struct{})}
	for _, ln := range all {
		l.wg.Go(func() { l.accept(ln) })
	}
	return l
}

// accept passes on the connections that one of the listeners accepts, until all are closed.
func (l *listeners) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, syscall.ENOSPC) {
			// All epoll watches of this user are used up, which ends the box that did it
			// (sandbox.Shared). Only this one connection is lost.
			select {
			case <-time.After(acceptAgain):
			case <-l.closed:
				return
			}
			continue
		}
		select {
		case l.accepted <- accepted{conn, err}:
		case <-l.closed:
			if err == nil {
				conn.Close() // it was accepted while the listeners closed
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (l *listeners) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Addr is the address of the first listener.
func (l *listeners) Addr() net.Addr { return l.all[0].Addr() }

// Close implements net.Listener.
func (l *listeners) Close() error {
	l.once.Do(func() {
		close(l.closed)
		var errs []error
		for _, ln := range l.all {
			errs = append(errs, ln.Close())
		}
		l.wg.Wait()
		l.err = errors.Join(errs...)
	})
	return l.err
}
