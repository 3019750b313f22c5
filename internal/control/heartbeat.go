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

	"golang.org/x/time/rate"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

//go:embed heartbeat.js
var heartbeatScript []byte

const (
	beatEvery   = 100 * time.Millisecond // of one page one report in so long is taken
	beatBurst   = 8                      // and so many at once: painted, seen and thrown may be one moment
	alive       = 20 * time.Second       // a page that said it is well is taken for alive so long; it says so every few seconds
	aliveHidden = 3 * time.Minute        // in a tab that nobody sees, where a browser lets timers run once a minute
	maxBeat     = 8 << 10
	maxLoads    = 16 // pages of one user at one computer that are remembered
	maxAllLoads = 4096
)

// load is one page that was served. What it says is believed about itself only:
// it runs beside the desktop's own code, which could say the same. It belongs to
// a user and a computer, not to a session: each page that enters gives the
// browser a new one, under which the pages it already shows report from then on.
type load struct {
	user   string
	cid    contract.CID
	mode   view.DesktopMode
	at     time.Time // it was last heard, or served
	heard  bool
	well   bool // it last said that it has painted
	hidden bool // it is in a tab that nobody sees
	gone   bool // it was unloaded: nothing that it said counts any more
	rate   *rate.Limiter
}

func newLoad(user string, cid contract.CID, mode view.DesktopMode, now time.Time) *load {
	return &load{user: user, cid: cid, mode: mode, at: now, rate: rate.NewLimiter(rate.Every(beatEvery), beatBurst)}
}

func (l *load) of(user string, cid contract.CID) bool { return l.user == user && l.cid == cid }

// expectBeat remembers that a page was served. It returns the name the page
// reports under. A page that never reports, or stops to, is no proof of
// anything but that visitor's line: whoever looks at it is told by the console.
func (s *Server) expectBeat(v desktopRequest, mode view.DesktopMode) string {
	id := httpio.NewNonce()
	l := newLoad(v.session.User, v.place.Computer, mode, s.options.Now())
	d := &s.desktops
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(l.user, l.cid)
	d.loads[id] = l
	return id
}

// forget makes room for one more page of a user at a computer, and of all.
func (d *desktops) forget(user string, cid contract.CID) {
	for {
		var oldest string
		n := 0
		for id, l := range d.loads {
			if l.of(user, cid) || len(d.loads) >= maxAllLoads {
				n++
				if oldest == "" || l.at.Before(d.loads[oldest].at) {
					oldest = id
				}
			}
		}
		if n < maxLoads && len(d.loads) < maxAllLoads {
			return
		}
		delete(d.loads, oldest)
	}
}

// others reports whether another page of a computer than l is well.
func (d *desktops) others(l *load, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.loads {
		if o != l && o.cid == l.cid && o.well && (now.Sub(o.at) < alive || o.hidden && now.Sub(o.at) < aliveHidden) {
			return true
		}
	}
	return false
}

// heartbeat takes what the injected script saw of its page.
func (s *Server) heartbeat(w http.ResponseWriter, r *http.Request, v desktopRequest) {
	b, err := io.ReadAll(httpio.Limit(r.Body, maxBeat))
	if err != nil {
		problem.Write(w, problem.Refuse(http.StatusRequestEntityTooLarge, fault.Invalid, "this is no heartbeat", ""))
		return
	}
	var in pageReport
	if err := json.Unmarshal(b, &in); err != nil {
		problem.Write(w, problem.Refuse(http.StatusUnprocessableEntity, fault.Invalid, "this is no heartbeat", ""))
		return
	}
	l, err := s.desktops.hear(in, v.session.User, v.place.Computer, s.options.Now())
	if err == nil && !l.gone {
		err = s.beat(r.Context(), l, in)
	}
	if err != nil {
		problem.Write(w, problem.Of(s.log, "heartbeat", err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// pageReport is what the injected script says.
type pageReport struct {
	Load   string `json:"load"`
	Mode   string `json:"mode"`
	Broken bool   `json:"broken"`
	Gone   bool   `json:"gone"`
	Hidden bool   `json:"hidden"`
	Stale  bool   `json:"stale"` // newer source than the page's own could not be loaded into it
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// hear finds the page that reports, and bounds how often it may.
func (d *desktops) hear(in pageReport, user string, cid contract.CID, now time.Time) (*load, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.loads[in.Load]
	if l == nil && len(in.Load) == httpio.NonceChars {
		// Served before the control plane was started again: it goes on.
		d.forget(user, cid)
		l = newLoad(user, cid, view.ModeBuild, now)
		if in.Mode == string(view.ModeLive) {
			l.mode = view.ModeLive
		}
		d.loads[in.Load] = l
	}
	if l == nil || !l.of(user, cid) {
		return nil, fault.New("", fault.NotFound, "Reload the page.", errors.New("no such page was served"))
	}
	if l.gone || in.Gone {
		// Kept for what it said before and arrives after.
		l.gone, l.well, l.at = true, false, now
		return l, nil
	}
	if !l.rate.AllowN(now, 1) {
		return nil, fault.New("", fault.Exhausted, "", errors.New("too many reports of one page"))
	}
	l.heard, l.at, l.well, l.hidden = true, now, !in.Broken, in.Hidden
	return l, nil
}

func (s *Server) beat(ctx context.Context, l *load, in pageReport) error {
	c, err := s.options.Computers.Get(ctx, l.cid)
	if err != nil {
		return err
	}
	beat := view.Heartbeat{Page: in.Load, Mode: l.mode, Broken: in.Broken, Stale: in.Stale}
	if in.Broken {
		beat.Reason, beat.Detail = "blank", plain(in.Detail, 2000)
		if in.Reason == "error" {
			beat.Reason = "error"
		}
		// The page of one visitor says nothing about the desktop while another
		// page of it is well.
		if s.desktops.others(l, s.options.Now()) && !defence.Off(defence.PageAlone) {
			return nil
		}
	}
	return c.Beat(ctx, beat)
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
