package control_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// TestAnUploadEndsWithItsSession begins to bring a file in, has the session ended while its bytes are on their way,
// and sends the rest: nothing may be written by who is signed out. PUT /api/computers/-/content ends in this case.
func TestAnUploadEndsWithItsSession(t *testing.T) {
	w := open(t)
	theirs := w.signIn()
	origin, desktop := w.enter(theirs)
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", w.port), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	fmt.Fprintf(conn, "POST /_choir/files?name=late HTTP/1.1\r\nHost: %s\r\n%s\r\n%s\r\nContent-Length: 8\r\nConnection: close\r\n\r\n%s", hostOf(origin), strings.Join(fetched(origin), "\r\n"), desktop, "1234")
	w.waitFor(func() bool { return w.machine().putting.Load() > 0 })
	mine := w.signIn()
	if res := w.ask("DELETE", hostOf(w.console()), "/api/sessions/"+w.idOfOther(mine), "", append(fetched(w.console()), mine)...); res.StatusCode/100 != 2 {
		t.Fatalf("end: %d %s", res.StatusCode, res.body)
	}
	_, _ = io.WriteString(conn, "5678")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if got, ok := w.machine().files["inbox/late"]; ok {
		t.Errorf("written after the session had ended: %q (%q, %v)", got, strings.TrimSpace(line), err)
	}
}

// TestAPutEndsWithItsSession is the same with PUT of the API, which holds: it is what the page's way in
// is measured by.
func TestAPutEndsWithItsSession(t *testing.T) {
	w := open(t)
	theirs := w.signIn()
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", w.port), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	fmt.Fprintf(conn, "PUT /api/computers/-/content?path=late HTTP/1.1\r\nHost: %s\r\n%s\r\n%s\r\nContent-Type: application/octet-stream\r\nContent-Length: 8\r\nConnection: close\r\n\r\n%s", hostOf(w.console()), strings.Join(fetched(w.console()), "\r\n"), theirs, "1234")
	w.waitFor(func() bool { return w.machine().putting.Load() > 0 })
	mine := w.signIn()
	if res := w.ask("DELETE", hostOf(w.console()), "/api/sessions/"+w.idOfOther(mine), "", append(fetched(w.console()), mine)...); res.StatusCode/100 != 2 {
		t.Fatalf("end: %d %s", res.StatusCode, res.body)
	}
	_, _ = io.WriteString(conn, "5678")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if got, ok := w.machine().files["late"]; ok {
		t.Errorf("written after the session had ended: %q (%q, %v)", got, strings.TrimSpace(line), err)
	}
}

func (m *machine) PutFile(ctx context.Context, by contract.Actor, put view.Put, content io.Reader) (view.File, error) {
	m.putting.Add(1)
	defer m.putting.Add(-1)
	b, err := io.ReadAll(content)
	if err == nil {
		err = ctx.Err() // as a workspace does, which writes nothing for who is gone
	}
	if err != nil {
		return view.File{}, fault.Wrap("memory.PutFile", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[put.Path] = b
	return view.File{ID: put.Path, Kind: view.FileRegular, Size: int64(len(b)), Mode: "0644"}, nil
}
