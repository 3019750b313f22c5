package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/origin"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/view"
)

// Addresses on a desktop's origin that the control plane answers itself, and limits of what is served
// there.
const (
	ownPrefix  = "/_choir/"
	enterPath  = ownPrefix + "enter" // takes a ticket from the console's page
	maxTicket  = 4 << 10
	keptPage   = "kept" // asks for the kept build's page although there is a live one
	mintTTL    = time.Hour
	maxMessage = 1 << 20 // one WebSocket message
	keptBuilds = 2       // how many builds are kept for each session's pages
	maxKept    = 1000    // for how many sessions builds are kept
)

var errTokenTicket = errors.New("tickets are for the console's page")

// desktops remembers the pages that were served.
type desktops struct {
	mu     sync.Mutex
	builds map[string][]fs.FS   // by session: the builds its pages came from, newest first
	loads  map[string]*pageLoad // the open pages, as far as is known
}

func (d *desktops) init() {
	d.builds, d.loads = map[string][]fs.FS{}, map[string]*pageLoad{}
}

// desktopRequest is a request to a desktop's origin from somebody who may see the desktop.
type desktopRequest struct {
	session identity.Session
	place   identity.Place
	label   string // the first label of the host name in the request
	origin  string
	actor   contract.Actor // the desktop's code, limited to what its visitor may do
}

// serveDesktop serves one desktop's origin. Agents write its page, so requests from it get no more than a
// session for this one computer allows.
func (s *Server) serveDesktop(w http.ResponseWriter, r *http.Request, label string) {
	handle := origin.Handle(label)
	h := w.Header()
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	self := s.hosts.Desktop(label)
	dest := r.Header.Get("Sec-Fetch-Dest")
	switch dest {
	case "script", "style", "font", "image":
		// Browsers apply the header only to documents and workers, and it is longer than many files.
	default:
		h.Set("Permissions-Policy", httpio.Permissions+", clipboard-read=()")
	}
	switch {
	case !defence.Off(defence.ControlWorkers) && (r.Header.Get("Service-Worker") != "" || dest == "serviceworker"):
		// A service worker would still answer for this origin after the desktop was rewound.
		problem.Write(w, problem.Refuse(http.StatusForbidden, fault.Denied, "there are no service workers here", ""))
		return
	case r.URL.Path == enterPath:
		s.enter(w, r, handle)
		return
	case dest == "document" && !origin.Unsafe(r):
		// The target is constant. The desktop is only ever shown in the console's frame.
		http.Redirect(w, r, s.hosts.Console()+"/", http.StatusSeeOther)
		return
	}
	if p := s.foreignToDesktop(r, self, asPage(r)); p != nil {
		problem.Write(w, p)
		return
	}
	v, err := s.visitor(r, handle)
	if err != nil {
		p := problem.Of(s.log, "desktop", err)
		if fault.Is(err, fault.Denied) || fault.Is(err, fault.NotFound) {
			p = problem.Refuse(http.StatusUnauthorized, fault.Denied, "this desktop's session has ended", "Reload the console.")
		}
		problem.Write(w, p)
		return
	}
	v.label, v.origin = label, self
	route := desktopRoute(r)
	if v.actor, err = s.granted(r.Context(), contract.DesktopOf(v.session.User), contract.Everything(), v.place.Computer); err == nil {
		err = needs(v.actor, route.may)
	}
	if err != nil {
		problem.Write(w, problem.Of(s.log, "desktop", err))
		return
	}
	route.serve(s, w, r, v)
}

// deskRoute is an address of a desktop's origin and the capability that it needs.
type deskRoute struct {
	method, path string
	may          contract.Capability
	serve        func(s *Server, w http.ResponseWriter, r *http.Request, v desktopRequest)
}

// deskRoutes are the addresses there that the control plane answers itself.
var deskRoutes = []deskRoute{
	{http.MethodGet, "session", contract.CanRead, (*Server).desktopSession},
	{http.MethodGet, "nats", contract.CanRead, (*Server).desktopBus},
	{http.MethodGet, "heartbeat.js", contract.CanRead, (*Server).heartbeatJS},
	{http.MethodPost, "heartbeat", contract.CanRead, (*Server).heartbeat}, // a page reports on itself, which is no change
	{http.MethodPost, "files", contract.CanWrite, (*Server).bringIn},
}

// deskContent serves every other address: the desktop's page and its files.
var deskContent = deskRoute{may: contract.CanRead, serve: (*Server).content}

func desktopRoute(r *http.Request) deskRoute {
	for _, d := range deskRoutes {
		if r.URL.Path == ownPrefix+d.path && r.Method == d.method {
			return d
		}
	}
	if strings.HasPrefix(r.URL.Path, "/_choir") {
		return deskRoute{may: contract.CanRead, serve: func(_ *Server, w http.ResponseWriter, _ *http.Request, _ desktopRequest) {
			problem.Write(w, problem.Refuse(http.StatusNotFound, fault.NotFound, "there is nothing here", ""))
		}}
	}
	return deskContent
}

// asPage reports whether a request is a navigation of the console's frame to the desktop's page.
func asPage(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Dest") == "iframe" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && !origin.Unsafe(r)
}

func (s *Server) heartbeatJS(w http.ResponseWriter, r *http.Request, _ desktopRequest) {
	s.compressor.Serve(w, r, func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(heartbeatScript) // the client has gone if this fails
	})
}

// holder identifies the account and the session that a desktop's sockets belong to.
func (v desktopRequest) holder() holder {
	return holder{account: v.session.User, session: v.session.ID}
}

// still returns a check of whether a visitor may still do something with the computer. It is made once more when the
// visitor's stream is registered, from when on it can be cut.
func (s *Server) still(v desktopRequest, what contract.Capability) func(context.Context) (contract.CID, error) {
	return func(ctx context.Context) (contract.CID, error) {
		_, err := s.options.Identity.ByPrincipal(ctx, v.session.ID)
		if err == nil {
			var now contract.Actor
			if now, err = s.granted(ctx, contract.DesktopOf(v.session.User), contract.Everything(), v.place.Computer); err == nil {
				err = needs(now, what)
			}
		}
		return v.place.Computer, err
	}
}

// foreignToDesktop refuses requests that neither the desktop's own page made nor, for the page itself,
// the console's frame. (Another desktop is of the same site and passes here; frame-ancestors keeps it
// from showing the page.)
func (s *Server) foreignToDesktop(r *http.Request, self string, page bool) *problem.Error {
	if page {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "same-origin", "same-site":
			return nil
		}
		return problem.Refuse(http.StatusForbidden, fault.Denied, "a desktop is shown in the console's frame only", "Open "+s.hosts.Console()+".")
	}
	switch r.Header.Get("Sec-Fetch-Dest") {
	case "iframe", "frame", "embed", "object", "fencedframe":
		return problem.Refuse(http.StatusForbidden, fault.Denied, "this can't be embedded", "")
	}
	return origin.Foreign(r, self)
}

// visitor checks that the request's session is a desktop's session of this very computer.
func (s *Server) visitor(r *http.Request, handle string) (desktopRequest, error) {
	secret := cookie(r, desktopCookie)
	ses, err := s.options.Identity.Session(r.Context(), secret, identity.Desktop)
	if err != nil {
		return desktopRequest{}, err
	}
	place, err := s.options.Identity.ByHandle(r.Context(), handle)
	if err != nil {
		return desktopRequest{}, err
	}
	if ses.Computer != place.Computer && !defence.Off(defence.ControlComputer) {
		return desktopRequest{}, fault.New("", fault.Denied, "", errOtherComputer)
	}
	return desktopRequest{session: ses, place: place}, nil
}

// enter exchanges a ticket, which the console's page posts into its frame, for the desktop's own cookie.
// Only the console's Origin may do so: another site must not sign anyone in, even with a ticket of its
// own.
func (s *Server) enter(w http.ResponseWriter, r *http.Request, handle string) {
	site := r.Header.Get("Sec-Fetch-Site")
	origin := r.Header.Values("Origin")
	contentType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.Method != http.MethodPost:
		problem.RefuseMethod(w, "a ticket is posted", http.MethodPost)
		return
	case !defence.Off(defence.ControlEnter) && (len(origin) != 1 || origin[0] != s.hosts.Console() || site != "same-site" || r.Header.Get("Sec-Fetch-Dest") != "iframe"):
		problem.Write(w, problem.Refuse(http.StatusForbidden, fault.Denied, "only the console opens a desktop", "Open "+s.hosts.Console()+"."))
		return
	case err != nil || contentType != "application/x-www-form-urlencoded":
		problem.Write(w, problem.Refuse(http.StatusUnsupportedMediaType, fault.Invalid, "a ticket is posted as a form", ""))
		return
	}
	b, err := io.ReadAll(httpio.Limit(r.Body, maxTicket))
	if err != nil {
		problem.Write(w, problem.Refuse(http.StatusRequestEntityTooLarge, fault.Invalid, "this is no ticket", ""))
		return
	}
	form, err := url.ParseQuery(string(b))
	if err != nil || len(form["ticket"]) != 1 {
		problem.Write(w, problem.Refuse(http.StatusUnprocessableEntity, fault.Invalid, "this is no ticket", ""))
		return
	}
	place, err := s.options.Identity.ByHandle(r.Context(), handle)
	var ses identity.Session
	var secret string
	if err == nil {
		ses, secret, err = s.options.Identity.Enter(r.Context(), form.Get("ticket"), place.Computer)
	}
	if err != nil {
		problem.Write(w, problem.Of(s.log, "enter", err))
		return
	}
	own := ownCookie(desktopCookie, secret, int(ses.Expires.Sub(s.options.Now()).Seconds()))
	http.SetCookie(w, &own)
	to := "/"
	if form.Get("kept") != "" {
		to = "/?" + keptPage
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

func (s *Server) desktopSession(w http.ResponseWriter, r *http.Request, v desktopRequest) {
	answer, err := func() (view.Session, error) {
		c, err := s.options.Computers.Get(r.Context(), v.place.Computer)
		if err != nil {
			return view.Session{}, err
		}
		info, err := c.Info(r.Context())
		if err != nil {
			return view.Session{}, err
		}
		provider, err := c.Provider(r.Context())
		if err != nil {
			return view.Session{}, err
		}
		ttl := min(mintTTL, v.session.Expires.Sub(s.options.Now()))
		cred, err := s.options.Bus.Mint(v.place.Computer, v.session.ID, ttl)
		if err != nil {
			return view.Session{}, err
		}
		return view.Session{
			ReadOnly: !v.actor.Can(contract.CanWrite),
			CID:      v.place.Computer, Name: info.Name, User: v.session.User, LastSequence: c.Last(), Provider: provider,
			NATS: view.SessionBus{URL: ownPrefix + "nats", JWT: cred.JWT, Seed: cred.Seed, Inbox: cred.Inbox, Streams: cred.Streams, Expires: cred.Expires},
		}, nil
	}()
	if err != nil {
		problem.Write(w, problem.Of(s.log, "desktop session", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client has gone if this fails
}

// desktopBus carries the desktop's NATS connection over a WebSocket. Session, Origin and Host have been
// checked; the bus checks the credentials.
func (s *Server) desktopBus(w http.ResponseWriter, r *http.Request, v desktopRequest) {
	// The request's own context ends when the connection is taken over; the computer stays awake as long
	// as this desktop is connected.
	ctx, release, err := s.hold(s.ctx, v.holder(), s.still(v, contract.CanRead))
	if err != nil {
		problem.Write(w, problem.Of(s.log, "desktop bus", err))
		return
	}
	defer release()
	c, err := s.options.Computers.Get(ctx, v.place.Computer)
	if err != nil {
		problem.Write(w, problem.Of(s.log, "desktop bus", err))
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: []string{v.origin}, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered
	}
	ws.SetReadLimit(maxMessage)
	if !s.begin() {
		_ = ws.Close(websocket.StatusGoingAway, "the server is closing") // it may have gone
		return
	}
	defer s.wg.Done()
	defer c.AddViewer(ctx)()
	defer s.services.Watch(v.place.Computer)()
	defer s.services.Forget(v.place.Computer, v.session.ID)
	if err := s.options.Bus.Serve(ctx, websocket.NetConn(ctx, ws, websocket.MessageBinary)); err != nil {
		s.log.Info("a desktop's connection was cut", "computer", v.place.Computer, "session", v.session.ID, "error", err)
		_ = ws.Close(websocket.StatusPolicyViolation, "refused") // it may have gone
		return
	}
	_ = ws.CloseNow() // it may have gone
}
