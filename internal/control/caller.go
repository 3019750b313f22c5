package control

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/origin"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/view"
)

// Cookies. The __Host- prefix ties each to its exact host: no desktop can set
// or shadow the console's.
const (
	consoleCookie = "__Host-choir-console"
	desktopCookie = "__Host-choir-desktop"
)

// caller is who sent a request.
type caller struct {
	user    string
	session *identity.Session // nil for a token
	secret  string            // of the session
	token   string            // the token's id, "" for a session
	appends *appending        // nil for a request that only reads
	machine bool              // the token that the machine's owner keeps in a file
	// scope is the most that what they came with is good for, and expires when that
	// ends by itself; zero: not before its stream does.
	scope   contract.CapabilitySet
	expires time.Time
}

// callerWith is who came with a token.
func callerWith(t identity.Token, r *http.Request) caller {
	return caller{user: t.User, token: t.ID, machine: t.Machine, scope: t.Scope(), expires: t.Expires, appends: appends(r)}
}

type callerKey struct{}

type actorKey struct{}

// actorOf is who asks, once they were let in: a person, with no more than they may
// of what is asked. Before that it is nobody.
func actorOf(ctx context.Context) contract.Actor {
	a, _ := ctx.Value(actorKey{}).(contract.Actor)
	return a
}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// open lists what needs no sign-in: signing in, and what describes the API.
var open = []string{"/api/claim", "/api/openapi.json"}

// withCaller lets in who may use the API: a token's holder from anywhere on
// this machine, or a console session from the console's own page.
func (s *Server) withCaller(next http.Handler, console bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
		if saysNothing(r) {
			problem.Write(w, problem.Refuse(http.StatusUnprocessableEntity, fault.Invalid, "a condition of the request names no version", `Send * for whatever is there, or leave it out.`))
			return
		}
		ctx := r.Context()
		auth := r.Header.Values("Authorization")
		switch {
		case len(auth) > 0:
			// No page of ours sends a token; one that does was handed it by someone.
			if len(auth) > 1 || fromPage(r) {
				problem.Write(w, problem.Refuse(http.StatusForbidden, fault.Denied, "tokens are for programs, not for pages", ""))
				return
			}
			secret, ok := strings.CutPrefix(auth[0], "Bearer ")
			if !ok {
				s.unauthorized(w, "the Authorization header is not a bearer token")
				return
			}
			t, err := s.options.Identity.Token(ctx, secret)
			if fault.Is(err, fault.Denied) {
				s.unauthorized(w, view.Describe(err).Detail)
				return
			}
			if err != nil {
				problem.Write(w, problem.Of(s.log, r.URL.Path, err))
				return
			}
			ctx = context.WithValue(ctx, callerKey{}, callerWith(t, r))
		case slices.Contains(open, r.URL.Path) || strings.HasPrefix(r.URL.Path, "/api/schemas/"):
			if console && origin.Unsafe(r) {
				if p := origin.Foreign(r, s.hosts.Console()); p != nil {
					problem.Write(w, p)
					return
				}
			} else if origin.Unsafe(r) {
				s.unauthorized(w, "sign in on the console")
				return
			}
		case !console:
			s.unauthorized(w, "an API token is required")
			return
		default:
			if p := origin.Foreign(r, s.hosts.Console()); p != nil {
				problem.Write(w, p)
				return
			}
			secret := cookie(r, consoleCookie)
			ses, err := s.options.Identity.Session(ctx, secret, identity.Console)
			if fault.Is(err, fault.Denied) {
				s.unauthorized(w, view.Describe(err).Detail)
				return
			}
			if err != nil {
				problem.Write(w, problem.Of(s.log, r.URL.Path, err))
				return
			}
			ctx = context.WithValue(ctx, callerKey{}, caller{user: ses.User, session: &ses, secret: secret, scope: contract.Everything(), appends: appends(r)})
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// saysNothing tells of a request that changes something on a condition which is empty, as of
// a variable that was never set: for whoever reads headers one by one it is none at all.
func saysNothing(r *http.Request) bool {
	return origin.Unsafe(r) && slices.Contains(slices.Concat(r.Header.Values("If-Match"), r.Header.Values("If-None-Match")), "")
}

// fromPage tells whether a browser sent a request for a page. It is a function
// of its own because the compiler calls defence.Off, which a release must not
// hold, where it stands inside a larger condition of a closure.
func fromPage(r *http.Request) bool {
	if defence.Off(defence.ControlTokens) {
		return false
	}
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

func (s *Server) unauthorized(w http.ResponseWriter, why string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="choir"`)
	problem.Write(w, problem.Refuse(http.StatusUnauthorized, fault.Denied, why, "Sign in with the link that choir up prints, or give a token in CHOIR_TOKEN."))
}

// cookie returns a cookie's value, "" when it is missing or given twice: two of
// one name can't both be ours.
func cookie(r *http.Request, name string) string {
	got := r.CookiesNamed(name)
	if len(got) != 1 {
		return ""
	}
	return got[0].Value
}

// ownCookie is a cookie of ours; a negative age removes it.
func ownCookie(name, value string, maxAge int) http.Cookie {
	return http.Cookie{Name: name, Value: value, Path: "/", MaxAge: maxAge, Secure: true, HttpOnly: true, SameSite: sameSite()}
}

// sameSite keeps our cookies out of what another site's page sends.
func sameSite() http.SameSite {
	if defence.Off(defence.ControlSameSite) {
		return http.SameSiteNoneMode
	}
	return http.SameSiteStrictMode
}

// address is where a request came from, for counting tries.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// only stands for "the one computer there is" in the API's paths.
const only = "-"

// govern counts what a user stops, decides and takes back with. Nothing that
// others stored, a desktop's page least of all, stands in the way of that: it
// counts against no bound but one of the caller's own.
func (s *Server) govern(ctx context.Context, cid contract.CID) error {
	if defence.Off(defence.ClientGovern) {
		return s.take(ctx, cid, s.quota.Take)
	}
	return s.take(ctx, cid, s.quota.Govern)
}

func (s *Server) placed(c view.Computer, p identity.Place) view.Computer {
	c.Handle, c.Desktop = p.Handle, s.hosts.Desktop(p.Handle)
	return c
}

// info returns a computer's description with where its desktop is.
func (s *Server) info(ctx context.Context, c Computer) (view.Computer, error) {
	info, err := c.Info(ctx)
	return s.located(ctx, info, err)
}

// located adds to a computer's description where its desktop is.
func (s *Server) located(ctx context.Context, info view.Computer, err error) (view.Computer, error) {
	if err != nil {
		return view.Computer{}, err
	}
	p, err := s.options.Identity.ByID(ctx, info.ID)
	if err != nil {
		return view.Computer{}, err
	}
	return s.placed(info, p), nil
}
