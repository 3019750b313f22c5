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

// Cookies. The __Host- prefix ties each to its exact host: no desktop can set or shadow the console's.
const (
	consoleCookie = "__Host-choir-console"
	desktopCookie = "__Host-choir-desktop"
)

// caller describes who sent a request.
type caller struct {
	user    string
	session *identity.Session // nil for a token
	secret  string            // of the session
	token   string            // the token's id, "" for a session
	appends *appending        // what the request adds to the log; nil if it only reads
	machine bool              // whether the token is the one in the machine owner's file
	// scope limits what the session or the token allows. expires is when the token ends; it is zero for
	// tokens without an end, and for sessions.
	scope   contract.CapabilitySet
	expires time.Time
}

// callerWith returns the caller who presented a token.
func callerWith(t identity.Token, r *http.Request) caller {
	return caller{user: t.User, token: t.ID, machine: t.Machine, scope: t.Scope(), expires: t.Expires, appends: appends(r)}
}

type callerKey struct{}

type actorKey struct{}

// actorOf returns the actor for whom a request was admitted, limited to what they may do. It is the zero
// Actor as long as the request has not been admitted.
func actorOf(ctx context.Context) contract.Actor {
	a, _ := ctx.Value(actorKey{}).(contract.Actor)
	return a
}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// open lists the addresses that need no sign-in: signing in itself, and the API's description.
var open = []string{"/api/claim", "/api/openapi.json"}

// withCaller admits those who may use the API: the holder of a token, or a console session whose request
// comes from the console's own page.
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
			// No page of ours sends a token. A page that does was given it by someone.
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

// saysNothing reports whether a request that changes something has an empty If-Match or If-None-Match
// header, as a script sends when its variable was never set. Such a header would otherwise be read as no
// condition at all.
func saysNothing(r *http.Request) bool {
	return origin.Unsafe(r) && slices.Contains(slices.Concat(r.Header.Values("If-Match"), r.Header.Values("If-None-Match")), "")
}

// fromPage reports whether a page in a browser sent a request. It is a function of its own because the
// compiler does not remove a call of defence.Off that is part of a larger condition in a closure, and a
// release must not contain such calls.
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

// cookie returns a cookie's value. It is "" when the cookie is missing, or when there are two of the
// name, of which at least one was not set by us.
func cookie(r *http.Request, name string) string {
	got := r.CookiesNamed(name)
	if len(got) != 1 {
		return ""
	}
	return got[0].Value
}

// ownCookie makes one of our cookies; a negative age removes it.
func ownCookie(name, value string, maxAge int) http.Cookie {
	return http.Cookie{Name: name, Value: value, Path: "/", MaxAge: maxAge, Secure: true, HttpOnly: true, SameSite: sameSite()}
}

// sameSite is the SameSite attribute of our cookies: browsers do not send them with requests that another
// site's page makes.
func sameSite() http.SameSite {
	if defence.Off(defence.ControlSameSite) {
		return http.SameSiteNoneMode
	}
	return http.SameSiteStrictMode
}

// address returns the IP address that a request came from, by which failed attempts are counted.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// only is what the API's paths hold in place of an id to mean the caller's only computer.
const only = "-"

// govern counts requests by which people stop, decide or take back something. They have a quota of their
// own for each caller, so that nothing others store, least of all a desktop's page, can keep a person
// from them.
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

// info returns a computer's description with its desktop's address.
func (s *Server) info(ctx context.Context, c Computer) (view.Computer, error) {
	info, err := c.Info(ctx)
	return s.located(ctx, info, err)
}

// located adds its desktop's address to a computer's description.
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
