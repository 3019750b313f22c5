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
	beatEvery    = 100 * time.Millisecond // one report of each page is accepted in this time,
	beatBurst    = 8                      // and this many at once, for a page may paint, become visible and throw in one moment
	alive        = 20 * time.Second       // how long a page counts as well after it last said so, which it does every few seconds
	aliveHidden  = 3 * time.Minute        // the same for a page in a hidden tab, where browsers run timers once a minute
	maxHeartbeat = 8 << 10
	maxLoads     = 16 // how many pages of one user are remembered for each computer
	maxAllLoads  = 4096
)

// pageLoad is one page that was served. Its reports are believed only about itself, because the desktop's own
// code runs in the same page and could send the same. It belongs to a user and a computer, not to a
// session: each page that enters gives the browser a new session, under which the pages that are shown
// already report from then on.
type pageLoad struct {
	user   string
	cid    contract.CID
	mode   view.DesktopMode
	at     time.Time // when it last reported, or was served
	heard  bool
	well   bool // whether it last reported that it has painted
	hidden bool // whether it is in a hidden tab
	gone   bool // whether it was unloaded, after which its reports no longer count
	rate   *rate.Limiter
}

func newPageLoad(user string, cid contract.CID, mode view.DesktopMode, now time.Time) *pageLoad {
	return &pageLoad{user: user, cid: cid, mode: mode, at: now, rate: rate.NewLimiter(rate.Every(beatEvery), beatBurst)}
}

func (l *pageLoad) of(user string, cid contract.CID) bool { return l.user == user && l.cid == cid }

// expectHeartbeat remembers that a page was served and returns the name under which the page will report. A
// page that never reports, or stops reporting, proves nothing about the desktop, for its visitor's
// connection may be at fault; the console tells the person who is looking at it.
func (s *Server) expectHeartbeat(v desktopRequest, mode view.DesktopMode) string {
	id := httpio.NewNonce()
	l := newPageLoad(v.session.User, v.place.Computer, mode, s.options.Now())
	d := &s.desktops
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(l.user, l.cid)
	d.loads[id] = l
	return id
}

// forget forgets the oldest pages until there is room for one more, of this user and computer and of all.
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

// others reports whether a page of l's computer other than l is well.
func (d *desktops) others(l *pageLoad, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.loads {
		if o != l && o.cid == l.cid && o.well && (now.Sub(o.at) < alive || o.hidden && now.Sub(o.at) < aliveHidden) {
			return true
		}
	}
	return false
}

// heartbeat receives what the injected script observed of its page.
func (s *Server) heartbeat(w http.ResponseWriter, r *http.Request, v desktopRequest) {
	b, err := io.ReadAll(httpio.Limit(r.Body, maxHeartbeat))
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
		err = s.deliverHeartbeat(r.Context(), l, in)
	}
	if err != nil {
		problem.Write(w, problem.Of(s.log, "heartbeat", err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// pageReport is a report of the injected script.
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

// hear finds the page that reports, and limits how often it may.
func (d *desktops) hear(in pageReport, user string, cid contract.CID, now time.Time) (*pageLoad, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.loads[in.Load]
	if l == nil && len(in.Load) == httpio.NonceChars {
		// The page was served before the control plane was restarted, and is still shown.
		d.forget(user, cid)
		l = newPageLoad(user, cid, view.ModeBuild, now)
		if in.Mode == string(view.ModeLive) {
			l.mode = view.ModeLive
		}
		d.loads[in.Load] = l
	}
	if l == nil || !l.of(user, cid) {
		return nil, fault.New("", fault.NotFound, "Reload the page.", errors.New("no such page was served"))
	}
	if l.gone || in.Gone {
		// It is kept so that earlier reports that arrive late are recognised as such.
		l.gone, l.well, l.at = true, false, now
		return l, nil
	}
	if !l.rate.AllowN(now, 1) {
		return nil, fault.New("", fault.Exhausted, "", errors.New("too many reports of one page"))
	}
	l.heard, l.at, l.well, l.hidden = true, now, !in.Broken, in.Hidden
	return l, nil
}

func (s *Server) deliverHeartbeat(ctx context.Context, l *pageLoad, in pageReport) error {
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
		// A broken page of one visitor is no proof against the desktop while another page of it is well.
		if s.desktops.others(l, s.options.Now()) && !defence.Off(defence.PageAlone) {
			return nil
		}
	}
	return c.Heartbeat(ctx, beat)
}

// plain removes control characters except line ends and tabs, and shortens the text to at most max bytes.
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
