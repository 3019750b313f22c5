package control_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/console"
	"choir.dev/choiros/internal/control"
)

// TestAttackAnUploadOutlivesItsSession begins to bring a file in, has the session ended while its bytes are on their way,
// and sends the rest: nothing may be written by who is signed out. PUT /api/computers/-/content ends in this case.
func TestAttackAnUploadOutlivesItsSession(t *testing.T) {
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
	time.Sleep(300 * time.Millisecond) // it has begun
	mine := w.signIn()
	if res := w.ask("DELETE", hostOf(w.console()), "/api/sessions/"+w.idOfOther(mine), "", append(fetched(w.console()), mine)...); res.StatusCode/100 != 2 {
		t.Fatalf("end: %d %s", res.StatusCode, res.body)
	}
	time.Sleep(100 * time.Millisecond)
	_, _ = io.WriteString(conn, "5678")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if got, ok := w.machine().files["inbox/late"]; ok {
		t.Errorf("written after the session had ended: %q (%q, %v)", got, strings.TrimSpace(line), err)
	}
}

// TestAttackAnUploadOutlivesItsSessionControl is the same with PUT of the API, which holds: it is what the page's way in
// is measured by.
func TestAttackAnUploadOutlivesItsSessionControl(t *testing.T) {
	w := open(t)
	theirs := w.signIn()
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", w.port), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	fmt.Fprintf(conn, "PUT /api/computers/-/content?path=late HTTP/1.1\r\nHost: %s\r\n%s\r\n%s\r\nContent-Type: application/octet-stream\r\nContent-Length: 8\r\nConnection: close\r\n\r\n%s", hostOf(w.console()), strings.Join(fetched(w.console()), "\r\n"), theirs, "1234")
	time.Sleep(300 * time.Millisecond)
	mine := w.signIn()
	if res := w.ask("DELETE", hostOf(w.console()), "/api/sessions/"+w.idOfOther(mine), "", append(fetched(w.console()), mine)...); res.StatusCode/100 != 2 {
		t.Fatalf("end: %d %s", res.StatusCode, res.body)
	}
	time.Sleep(100 * time.Millisecond)
	_, _ = io.WriteString(conn, "5678")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if got, ok := w.machine().files["late"]; ok {
		t.Errorf("written after the session had ended: %q (%q, %v)", got, strings.TrimSpace(line), err)
	}
}

// TestAttackAPageIsNotCounted stores as a client of the API does, and as a desktop's page does, with a limit of five.
func TestAttackAPageIsNotCounted(t *testing.T) {
	w := openWith(t, console.Files(), func(o *control.Options) { o.Appends.SessionEvents = 5 })
	cookie := w.signIn()
	origin, desktop := w.enter(cookie)
	refused := func(do func(n int) answer) bool {
		for n := range 20 {
			if res := do(n); res.StatusCode >= 400 {
				t.Logf("the %d. is refused: %d %s", n+1, res.StatusCode, res.body)
				return true
			}
		}
		return false
	}
	if !refused(func(n int) answer {
		return w.ask("PUT", hostOf(w.console()), fmt.Sprintf("/api/computers/-/content?path=a%d", n), "x", append(fetched(w.console()), "Content-Type: application/octet-stream", cookie)...)
	}) {
		t.Error("PUT is not counted")
	}
	if !refused(func(n int) answer {
		return w.ask("POST", hostOf(origin), fmt.Sprintf("/_choir/files?name=b%d", n), "x", append(fetched(origin), desktop)...)
	}) {
		t.Error("a page stores as many files as it likes")
	}
}
