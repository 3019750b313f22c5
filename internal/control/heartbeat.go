package control

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/api"
	"choir.dev/choiros/internal/fault"
)

//go:embed heartbeat.js
var heartbeatScript []byte

const (
	silence      = 25 * time.Second // a page that says nothing for so long has not come up
	maxBeat      = 8 << 10
	maxLoads     = 16 // pages of one session that are remembered
	beatEvery    = 100 * time.Millisecond
	maxAllLoads  = 4096
	beatDeadline = 10 * time.Second
)

// load is one page that was served.
type load struct {
	session string
	cid     contract.CID
	mode    api.DesktopMode
	at      time.Time
	heard   bool
	timer   *time.Timer
}

// expectBeat remembers that a page was served and says so when it stays silent
// while somebody looks. It returns the name the page reports under.
func (s *Server) expectBeat(v visit, mode api.DesktopMode) string {
	id := newNonce()
	l := &load{session: v.session.ID, cid: v.place.Computer, mode: mode, at: s.o.Now()}
	d := &s.desktops
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(v.session.ID)
	l.timer = time.AfterFunc(silence, func() {
		d.mu.Lock()
		silent := !l.heard && d.loads[id] == l && d.looks[string(l.cid)] > 0
		d.mu.Unlock()
		if !silent || !s.begin() {
			return
		}
		defer s.wg.Done()
		ctx, cancel := context.WithTimeout(s.ctx, beatDeadline)
		defer cancel()
		if err := s.beat(ctx, l, api.Heartbeat{Mode: mode, Broken: true, Reason: "silent"}); err != nil {
			s.log.Error("a silent desktop could not be reported", "computer", l.cid, "error", err)
		}
	})
	d.loads[id] = l
	return id
}

// forget makes room for one more page of a session, and of all.
func (d *desktops) forget(session string) {
	for {
		var oldest string
		n := 0
		for id, l := range d.loads {
			if l.session == session || len(d.loads) >= maxAllLoads {
				n++
				if oldest == "" || l.at.Before(d.loads[oldest].at) {
					oldest = id
				}
			}
		}
		if n < maxLoads && len(d.loads) < maxAllLoads {
			return
		}
		d.loads[oldest].timer.Stop()
		delete(d.loads, oldest)
	}
}

// stop ends the waiting for pages.
func (d *desktops) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.loads {
		l.timer.Stop()
	}
}

// looking counts an open console frame until the returned function is called.
func (d *desktops) looking(cid contract.CID) func() {
	d.mu.Lock()
	d.looks[string(cid)]++
	d.mu.Unlock()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.looks[string(cid)]--; d.looks[string(cid)] <= 0 {
			delete(d.looks, string(cid))
		}
	}
}

// heartbeat takes what the injected script saw. It runs beside the desktop's
// own code, which could say the same: it is believed about that page only.
func (s *Server) heartbeat(w http.ResponseWriter, r *http.Request, v visit) {
	b, err := io.ReadAll(&limited{r.Body, maxBeat})
	if err != nil {
		writeProblem(w, refusal(http.StatusRequestEntityTooLarge, fault.Invalid, "this is no heartbeat", ""))
		return
	}
	var in struct {
		Load   string `json:"load"`
		Broken bool   `json:"broken"`
		Gone   bool   `json:"gone"`
		Reason string `json:"reason"`
		Detail string `json:"detail"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		writeProblem(w, refusal(http.StatusUnprocessableEntity, fault.Invalid, "this is no heartbeat", ""))
		return
	}
	l, err := s.desktops.hear(in.Load, v.session.ID, in.Gone, s.o.Now())
	if err != nil {
		writeProblem(w, problemOf(s.log, "heartbeat", err))
		return
	}
	if !in.Gone {
		beat := api.Heartbeat{Mode: l.mode, Broken: in.Broken}
		if in.Broken {
			beat.Reason, beat.Detail = "blank", plain(in.Detail, 2000)
			if in.Reason == "error" {
				beat.Reason = "error"
			}
		}
		if err := s.beat(r.Context(), l, beat); err != nil {
			writeProblem(w, problemOf(s.log, "heartbeat", err))
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// hear finds the page that reports, and bounds how often it may.
func (d *desktops) hear(id, session string, gone bool, now time.Time) (*load, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.loads[id]
	if l == nil || l.session != session {
		return nil, fault.New("", fault.NotFound, "Reload the page.", errors.New("no such page was served"))
	}
	l.timer.Stop()
	if gone {
		delete(d.loads, id)
		return l, nil
	}
	if l.heard && now.Sub(l.at) < beatEvery {
		return nil, fault.New("", fault.Exhausted, "", errors.New("one report at a time"))
	}
	l.heard, l.at = true, now
	return l, nil
}

func (s *Server) beat(ctx context.Context, l *load, b api.Heartbeat) error {
	c, err := s.o.Computers.Get(ctx, l.cid)
	if err != nil {
		return err
	}
	return c.Beat(ctx, b)
}

// plain keeps what can be shown as text: at most max bytes, no control
// characters but line ends.
func plain(text string, max int) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, text)
	if len(text) > max {
		text = strings.ToValidUTF8(text[:max], "")
	}
	return text
}
