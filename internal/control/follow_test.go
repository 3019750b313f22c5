package control_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/grant"
)

// TestARunsWordsAreTheirFollowers shows that a run's text, while it is being written, is sent only
// to sessions that follow the run: not to another member, nor to another page of the same person,
// nor to a connection that has ended.
func TestARunsWordsAreTheirFollowers(t *testing.T) {
	w := open(t)
	b := w.person("B")
	w.join(b, w.machine().cid, grant.Viewer)
	mine := w.signIn()
	type page struct {
		nc  *nats.Conn
		got chan *nats.Msg
	}
	var cid string
	connect := func(cookie string) page {
		origin, desktop := w.enter(cookie)
		p := page{got: make(chan *nats.Msg, 64)}
		p.nc, cid = w.connectDesktop(origin, desktop)
		for _, subject := range []string{"live." + cid + ".>", w.streamsOf(origin, desktop)} {
			if _, err := p.nc.ChanSubscribe(subject, p.got); err != nil {
				t.Fatal(err)
			}
		}
		check(t, p.nc.Flush())
		return p
	}
	prompter, again, viewer := connect(mine), connect(mine), connect(b.cookie)
	run, other := contract.NewID(), contract.NewID()
	follow := func(p page, run string) {
		if got := request(t, p.nc, "svc."+cid+".run.follow", fmt.Sprintf(`{"run":%q}`, run)); got != `{}` {
			t.Fatalf("follow: %s", got)
		}
	}
	// words returns how many pieces of a run's text each page gets of one that is sent. Pieces of a
	// run that all of them follow are sent after it, so that what has not arrived before these
	// never will.
	mark := contract.NewID()
	for _, p := range []page{prompter, again, viewer} {
		follow(p, mark)
	}
	words := func(run string, pages ...page) []int {
		for _, subject := range []string{contract.SubjectWords(contract.CID(cid), run), contract.SubjectWords(contract.CID(cid), mark)} {
			check(t, w.bus.Conn().Publish(subject, []byte(`{"text":"a"}`)))
		}
		out := make([]int, len(pages))
		for i, p := range pages {
			for marked := false; !marked; {
				select {
				case m := <-p.got:
					n := len(m.Subject)
					switch {
					case n > 36 && m.Subject[n-36:] == mark:
						marked = true
					case n > 36 && m.Subject[n-36:] == run:
						out[i]++
					}
				case <-time.After(20 * time.Second):
					t.Fatal("nothing comes")
				}
			}
		}
		return out
	}
	follow(prompter, run)
	follow(again, other)
	if got := words(run, prompter, again, viewer); fmt.Sprint(got) != "[1 0 0]" {
		t.Errorf("a run's words went to %v of prompter, another page of theirs, a viewer", got)
	}
	follow(viewer, run) // it opened the run
	if got := words(run, prompter, again, viewer); fmt.Sprint(got) != "[1 0 1]" {
		t.Errorf("once a viewer follows, to %v", got)
	}
	for range 16 {
		follow(viewer, contract.NewID())
	}
	follow(viewer, mark)
	if got := words(run, prompter, again, viewer); fmt.Sprint(got) != "[1 0 0]" {
		t.Errorf("of sixteen newer ones, to %v", got)
	}
	prompter.nc.Close()
	w.waitFor(func() bool { return w.srv.Followed() < 19 })
	if got := words(run, again, viewer); fmt.Sprint(got) != "[0 0]" {
		t.Errorf("to %v", got)
	}
}

// streamsOf returns the subject of a page's own streams.
func (w *world) streamsOf(origin, cookie string) string {
	w.t.Helper()
	var s struct{ NATS struct{ Streams string } }
	res := w.ask("GET", hostOf(origin), "/_choir/session", "", append(fetched(origin)[1:], cookie)...)
	if err := json.Unmarshal([]byte(res.body), &s); err != nil || s.NATS.Streams == "" {
		w.t.Fatalf("session: %d %s", res.StatusCode, res.body)
	}
	return s.NATS.Streams
}
