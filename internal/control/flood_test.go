package control_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/console"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/control/quota"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// openLimited is open with bounds on what clients append, and with a clock that moves only when the
// test moves it.
func openLimited(t *testing.T, l quota.Limits) (*world, func(time.Duration)) {
	t.Helper()
	begin := time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
	var gone atomic.Int64
	w := openWith(t, console.Files(), func(o *control.Options) {
		o.Appends = l
		o.Now = func() time.Time { return begin.Add(time.Duration(gone.Load())) }
	})
	return w, func(d time.Duration) { gone.Add(int64(d)) }
}

// moved is an event that a person may append, of about this many bytes.
func moved(bytes int) string {
	return fmt.Sprintf(`{"type":"window.opened","id":%q,"data":{"window":"w","app":"a","title":"t","frame":{"x":0,"y":0,"w":1,"h":1},"state":"normal","props":{"x":%q}}}`,
		contract.NewID(), strings.Repeat("y", max(0, bytes-200)))
}

// fill appends until it is refused, and returns how many events were accepted.
func fill(t *testing.T, nc *nats.Conn, cid string, bytes, atMost int) int {
	t.Helper()
	for n := range atMost + 1 {
		got := request(t, nc, "user."+cid+".action", moved(bytes))
		if strings.Contains(got, `"error"`) {
			if !strings.Contains(got, `"code":"exhausted"`) || !strings.Contains(got, "too much at once") {
				t.Errorf("refused with %s", got)
			}
			return n
		}
	}
	t.Fatalf("%d were taken", atMost+1)
	return 0
}

// TestClientsCantFloodTheLog shows that events and bytes are bounded by session, by computer and by
// day; that reading goes on; and that the person is told.
func TestClientsCantFloodTheLog(t *testing.T) {
	const many = 1 << 30
	for _, c := range []struct {
		name   string
		limits quota.Limits
		bytes  int
		want   int
	}{
		{"a session's events", quota.Limits{SessionEvents: 5, SessionBytes: many, ComputerEvents: 100, ComputerBytes: many, DayEvents: 100, DayBytes: many}, 300, 5},
		{"a session's bytes", quota.Limits{SessionEvents: 100, SessionBytes: 10_000, ComputerEvents: 100, ComputerBytes: many, DayEvents: 100, DayBytes: many}, 3000, 3},
		{"a computer's events", quota.Limits{SessionEvents: 100, SessionBytes: many, ComputerEvents: 4, ComputerBytes: many, DayEvents: 100, DayBytes: many}, 300, 4},
		{"a computer's bytes", quota.Limits{SessionEvents: 100, SessionBytes: many, ComputerEvents: 100, ComputerBytes: 10_000, DayEvents: 100, DayBytes: many}, 3000, 3},
		{"a day's events", quota.Limits{SessionEvents: 100, SessionBytes: many, ComputerEvents: 100, ComputerBytes: many, DayEvents: 6, DayBytes: many}, 300, 6},
		{"a day's bytes", quota.Limits{SessionEvents: 100, SessionBytes: many, ComputerEvents: 100, ComputerBytes: many, DayEvents: 100, DayBytes: 10_000}, 3000, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, pass := openLimited(t, c.limits)
			cookie := w.signIn()
			origin, desktop := w.enter(cookie)
			nc, cid := w.connectDesktop(origin, desktop)
			// The ticket that let the desktop in counts for the console's session.
			before := w.machine().Last()
			first := fill(t, nc, cid, c.bytes, 50)
			if first < c.want-1 || first > c.want {
				t.Errorf("%d were taken, want %d", first, c.want)
			}
			if n := w.machine().Last() - before; n != uint64(first) {
				t.Errorf("%d events are in the log", n)
			}
			if got := request(t, nc, "svc."+cid+".log.read", `{"after":0}`); strings.Contains(got, `"error"`) {
				t.Errorf("reading is refused: %s", got)
			}
			res := w.ask("GET", hostOf(w.console()), "/api/computers/-/frame", "", append(fetched(w.console()), cookie)...)
			if !strings.Contains(res.body, `"limited":"`) {
				t.Errorf("the console is not told: %s", res.body)
			}
			// A program is another session of the same computer on the same day.
			_, err := w.client().Prompt(within(t), view.Prompt{Text: strings.Repeat("z", c.bytes)})
			if other := strings.HasPrefix(c.name, "a session"); other != (err == nil) || !other && !fault.Is(err, fault.Exhausted) {
				t.Errorf("another session: %v", err)
			}
			pass(time.Minute)
			again := fill(t, nc, cid, c.bytes, 50)
			if strings.HasPrefix(c.name, "a day") != (again == 0) {
				t.Errorf("a minute later %d were taken", again)
			}

		})
	}
}

// TestARestartForgivesNothing shows that after a restart the day's events in the log still count.
func TestARestartForgivesNothing(t *testing.T) {
	w, pass := openLimited(t, quota.Limits{DayEvents: 10, DayBytes: 1 << 20})
	w.machine().before.events = 9
	c := w.client()
	if _, err := c.Prompt(within(t), view.Prompt{Text: "one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Prompt(within(t), view.Prompt{Text: "two"}); !fault.Is(err, fault.Exhausted) || !strings.Contains(fault.HintOf(err), "budget.day_events") {
		t.Errorf("%v", err)
	}
	res := w.ask("POST", hostOf(w.console()), "/api/computers/-/prompts", `{"text":"three"}`, "Authorization: Bearer "+w.token, "Content-Type: application/json")
	if res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	w.machine().before.events = 0
	pass(24 * time.Hour)
	if _, err := c.Prompt(within(t), view.Prompt{Text: "tomorrow"}); err != nil {
		t.Error(err)
	}
}

// TestAttack45_AFloodTakesNothingOutOfItsUsersHands: a desktop's page, which agents write, stores
// as much as a computer may store in a minute, or in a day. The user can still stop runs and undo.
func TestAttack45_AFloodTakesNothingOutOfItsUsersHands(t *testing.T) {
	const many = 1 << 30
	for name, limits := range map[string]quota.Limits{
		"a minute": {SessionEvents: 20, SessionBytes: many, ComputerEvents: 10, ComputerBytes: many, DayEvents: 1000, DayBytes: many},
		"a day":    {SessionEvents: 20, SessionBytes: many, ComputerEvents: 1000, ComputerBytes: many, DayEvents: 10, DayBytes: many},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := openLimited(t, limits)
			cookie := w.signIn()
			nc, cid := w.connectDesktop(w.enter(cookie))
			fill(t, nc, cid, 300, 50)
			post := func(path, body string) answer {
				return w.ask("POST", hostOf(w.console()), "/api/computers/-"+path, body, append(fetched(w.console()), cookie, "Content-Type: application/json")...)
			}
			if res := post("/prompts", `{"text":"more"}`); res.StatusCode != http.StatusTooManyRequests {
				t.Fatalf("the bound does not hold, so this shows nothing: %d %s", res.StatusCode, res.body)
			}
			for path, body := range map[string]string{
				"/runs/" + contract.NewID() + "/cancel": "", "/runs/" + contract.NewID() + "/pause": "", "/approvals/" + contract.NewID(): `{"answer":"deny"}`,
				"/commands/" + contract.NewID() + "/stop": "", "/restore": `{"undo":true}`, "/undo": `{}`, "/rewind": `{}`, "/ticket": "",
			} {
				if res := post(path, body); res.StatusCode == http.StatusTooManyRequests {
					t.Errorf("%s: %s", path, res.body)
				}
			}
			// These have a bound of their own.
			refused := false
			for range 2 * limits.SessionEvents {
				refused = refused || post("/ticket", "").StatusCode == http.StatusTooManyRequests
			}
			if !refused {
				t.Error("nothing bounds it")
			}
		})
	}
}
