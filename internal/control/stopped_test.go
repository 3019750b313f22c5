package control_test

import (
	"context"
	"net"
	"testing"

	"choir.dev/choiros/console"
	"choir.dev/choiros/internal/control"
)

// TestWhoIsCutOffIsNoFailure: a connection on which nothing is asked, as browsers
// open some ahead, keeps the page's end waiting and does not make it an error, for
// choir up goes on only without one.
func TestWhoIsCutOffIsNoFailure(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	page, err := control.NewStopped(control.StoppedOptions{Console: console.Files(), Host: "choir.localhost", Port: ln.Addr().(*net.TCPAddr).Port})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	served := make(chan error, 1)
	go func() { served <- page.Serve(ctx, ln) }()
	silent, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	// Connections are accepted in their order: once a later one is answered, this is there.
	asked, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	if _, err := asked.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := asked.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	end()
	if err := <-served; err != nil {
		t.Errorf("the page ended with %v", err)
	}
}
