package control_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/console"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/grant"
)

// stream opens a long answer over HTTP with a token.
func (w *world) stream(p person, target string) <-chan string {
	w.t.Helper()
	return w.follow(target, "Authorization: Bearer "+p.token)
}

// follow opens a long answer over HTTP, waits until it has begun with 200, and returns a channel
// that tells when it ends.
func (w *world) follow(target string, headers ...string) <-chan string {
	w.t.Helper()
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", w.port), 5*time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	check(w.t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\nConnection: close\r\n\r\n", target, hostOf(w.console()), strings.Join(headers, "\r\n"))
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil || !strings.Contains(line, "200") {
		w.t.Fatalf("%s: %q, %v", target, line, err)
	}
	check(w.t, conn.SetReadDeadline(time.Time{}))
	ended := make(chan string, 1)
	go func() {
		_, err := io.Copy(io.Discard, in)
		ended <- fmt.Sprint(err)
	}()
	return ended
}

// TestWhoLeavesLosesWhatIsUnderWay shows that when somebody is removed from a computer or gets a
// lesser role there, signs out, or loses their token or account, what they have under way there,
// and only there, ends at once: streams over HTTP, the desktop's connections and commands.
func TestWhoLeavesLosesWhatIsUnderWay(t *testing.T) {
	for how, leave := range map[string]func(w *world, p person, cid contract.CID) (method, target, body string){
		"is taken out": func(w *world, p person, cid contract.CID) (string, string, string) {
			return "DELETE", "/api/computers/" + string(cid) + "/members/" + p.ID, ""
		},
		"may less": func(w *world, p person, cid contract.CID) (string, string, string) {
			return "PATCH", "/api/computers/" + string(cid) + "/members/" + p.ID, `{"role":"viewer"}`
		},
		"goes": func(w *world, p person, cid contract.CID) (string, string, string) {
			return "DELETE", "/api/accounts/" + p.ID, ""
		},
	} {
		t.Run(how, func(t *testing.T) {
			w := open(t)
			p := w.person("B")
			cid := w.machine().cid
			other := w.computer("Other", w.owner.ID)
			w.join(p, cid, grant.Editor)
			w.join(p, other.cid, grant.Editor)
			origin, desktop := w.enterAt(p.cookie, string(cid))
			nc, _ := w.connectDesktop(origin, desktop)
			here := w.stream(p, "/api/computers/"+string(cid)+"/frame/stream")
			events := w.stream(p, "/api/computers/"+string(cid)+"/events?follow=true")
			there := w.stream(p, "/api/computers/"+string(other.cid)+"/frame/stream")
			mine := w.stream(person{token: w.token}, "/api/computers/"+string(cid)+"/frame/stream")
			if got := request(t, nc, "svc."+string(cid)+".exec.run", `{"id":"`+contract.NewID()+`","argv":["sleep"]}`); !strings.Contains(got, "sequence") {
				t.Fatalf("exec: %s", got)
			}
			method, target, body := leave(w, p, cid)
			headers := []string{"Authorization: Bearer " + w.token}
			if body != "" {
				headers = append(headers, "Content-Type: application/json")
			}
			begun := time.Now()
			if res := w.ask(method, hostOf(w.console()), target, body, headers...); res.StatusCode/100 != 2 {
				t.Fatalf("%d %s", res.StatusCode, res.body)
			}
			late := time.After(10 * time.Second)
			for what, ended := range map[string]<-chan string{"the frame": here, "the events": events} {
				select {
				case <-ended:
				case <-late:
					t.Errorf("%s of who %s goes on", what, how)
				}
			}
			select {
			case <-w.machine().killed:
			case <-late:
				t.Errorf("the command of who %s goes on", how)
			}
			w.waitFor(nc.IsClosed)
			t.Logf("all of it ended within %s", time.Since(begun))
			if how == "goes" {
				<-there
			}
			select {
			case why := <-mine:
				t.Errorf("another member's stream ended: %s", why)
			case why := <-there:
				t.Errorf("the stream of another computer ended: %s", why)
			default:
			}
			if res := w.ask("GET", hostOf(origin), "/_choir/session", "", append(fetched(origin)[1:], desktop)...); res.StatusCode != 401 {
				t.Errorf("the desktop of who %s answers %d %s", how, res.StatusCode, res.body)
			}
		})
	}
}

// TestARevokedTokenLosesItsStreams shows that revoking a token ends what is under way with it.
func TestARevokedTokenLosesItsStreams(t *testing.T) {
	w := open(t)
	p := w.person("B")
	w.join(p, w.machine().cid, grant.Viewer)
	ended := w.stream(p, "/api/computers/-/events?follow=true")
	list, err := w.ids.Tokens(context.Background(), p.ID)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if res := w.ask("DELETE", hostOf(w.console()), "/api/tokens/"+list[0].ID, "", append(fetched(w.console()), p.cookie)...); res.StatusCode/100 != 2 {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the stream of a revoked token goes on")
	}
}

// slow are computers that callers get only when the test lets them.
type slow struct {
	*memory
	let   atomic.Pointer[chan struct{}]
	asked atomic.Int64 // how many callers wait
}

func (s *slow) Get(ctx context.Context, cid contract.CID) (control.Computer, error) {
	if let := s.let.Load(); let != nil {
		s.asked.Add(1)
		<-*let
	}
	return s.memory.Get(ctx, cid)
}

// TestWhoLeavesBeginsNothing: somebody is removed after it was checked that they may, and before
// their command starts. The command must not start, because ending what they have under way could
// not find it.
func TestWhoLeavesBeginsNothing(t *testing.T) {
	var computers *slow
	w := openWith(t, console.Files(), func(o *control.Options) {
		computers = &slow{memory: o.Computers.(*memory)}
		o.Computers = computers
	})
	p := w.person("B")
	cid := w.machine().cid
	w.join(p, cid, grant.Editor)
	origin, desktop := w.enterAt(p.cookie, string(cid))
	nc, _ := w.connectDesktop(origin, desktop)
	let := make(chan struct{})
	computers.let.Store(&let)
	if err := nc.PublishRequest("svc."+string(cid)+".exec.run", nc.NewInbox(), []byte(`{"id":"`+contract.NewID()+`","argv":["sleep"]}`)); err != nil {
		t.Fatal(err)
	}
	w.waitFor(func() bool { return computers.asked.Load() >= 2 }) // one of them is the tick, of which there is only one
	if res := w.ask("DELETE", hostOf(w.console()), "/api/computers/"+string(cid)+"/members/"+p.ID, "", "Authorization: Bearer "+w.token); res.StatusCode/100 != 2 {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	w.waitFor(nc.IsClosed)
	computers.let.Store(nil)
	close(let)
	select {
	case <-w.machine().killed:
	case <-time.After(500 * time.Millisecond):
		m := w.machine()
		m.mu.Lock()
		defer m.mu.Unlock()
		if slices.ContainsFunc(m.events, func(e contract.Event) bool { return e.Type == "command.started" }) {
			t.Error("a command of who is gone runs")
		}
	}
}
