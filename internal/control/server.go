package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/mcp"
	"choir.dev/choiros/internal/control/origin"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/control/quota"
	"choir.dev/choiros/internal/control/service"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Bus is what desktops need of NATS; *bus.Bus is one.
type Bus interface {
	service.Bus
	Mint(cid contract.CID, principal string, ttl time.Duration) (bus.Credentials, error)
	Revoke(principal string) error
	Serve(ctx context.Context, conn net.Conn) error
}

// Options configure a server.
type Options struct {
	Identity  *identity.Store
	Computers Computers
	System    System
	Bus       Bus
	Console   fs.FS  // the console's pages and assets (package console)
	Host      string // parent of console.HOST and {handle}.desk.HOST, such as choir.localhost
	Port      int    // the listener's port, as browsers see it
	Version   string
	Logger    *slog.Logger
	Now       func() time.Time // nil: time.Now
	// Appends bounds how much clients may add to the log.
	Appends quota.Limits
	// AddBytes is the largest archive that may be uploaded, in bytes; 0 means 4 GiB.
	AddBytes int64
	// Stop has the process end as by a signal; nil where nothing can be stopped.
	Stop func() error
}

// Server serves the control plane's HTTP on one address.
type Server struct {
	options    Options
	hosts      origin.Hosts
	log        *slog.Logger
	tries      *identity.SignInLimiter
	console    http.Handler
	bare       http.Handler
	openapi    []byte
	streams    streams
	pages      *pages
	compressor httpio.Compressor
	quota      *quota.Quota

	desktops desktops
	services *service.Services
	own      rpc.Table // the methods that the control plane answers itself
	making   creations
	mcp      *mcp.Sessions

	ctx    context.Context // ends when the server closes
	cancel context.CancelFunc
	mu     sync.Mutex // held to begin work that Close waits for
	wg     sync.WaitGroup
}

// Limits of one request.
const (
	requestTimeout = time.Minute
	longTimeout    = 15 * time.Minute // for requests that copy, build or replay
	defaultUpload  = 4 << 30          // an archive, which storage.add_mb bounds
	maxFile        = 1 << 40          // a file, which storage.large_file_mb bounds
)

// New makes a server and begins to answer desktops on the bus. HTTP is served by Serve, or by using the
// server as a handler. The caller must close it, whether or not it serves.
func New(o Options) (*Server, error) {
	const op = "control.New"
	if o.Identity == nil || o.Computers == nil || o.System == nil || o.Bus == nil || o.Console == nil || o.Host == "" || o.Port <= 0 {
		return nil, fault.New(op, fault.Invalid, "", errors.New("identity, computers, system, bus, console, host and port are required"))
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.AddBytes <= 0 {
		o.AddBytes = defaultUpload
	}
	s := &Server{options: o, log: o.Logger, hosts: origin.Hosts{Parent: o.Host, Port: fmt.Sprint(o.Port)}, tries: identity.NewTries(o.Now)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.streams.open = map[*stream]struct{}{}
	s.desktops.init()
	s.quota = quota.New(o.Appends, o.Logger, o.Now, func(ctx context.Context, cid contract.CID, since time.Time) (int, int64, error) {
		c, err := o.Computers.History(ctx, cid) // clients may append also to a computer that can't be woken
		if err != nil {
			return 0, 0, err
		}
		return c.Appended(ctx, since)
	})
	var err error
	if s.compressor, err = httpio.NewCompressor(); err != nil {
		return nil, fault.Wrap(op, err)
	}
	if s.pages, err = loadPages(o.Console); err != nil {
		return nil, fault.Wrap(op, err)
	}
	if err := s.routes(); err != nil {
		return nil, fault.Wrap(op, err)
	}
	s.services, err = service.Start(service.Options{
		Bus: o.Bus,
		Computer: func(ctx context.Context, cid contract.CID) (service.Computer, error) {
			return o.Computers.Get(ctx, cid)
		},
		May:    s.onBus,
		Take:   s.quota.Take,
		Logger: o.Logger,
	})
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	return s, nil
}

// ConsoleURL is the console's origin.
func (s *Server) ConsoleURL() string { return s.hosts.Console() }

// ClaimURL returns a one-time link. The token is in the URL's fragment, which browsers send to nobody, so
// it appears in no log, Referer header or prefetch. again is for an account that was claimed already: its page asks for no
// name, for nothing is named any more.
func (s *Server) ClaimURL(token string, again bool) string {
	page := s.hosts.Console() + "/claim"
	if again {
		page += "?again"
	}
	return page + "#" + token
}

// Serve serves ln until ctx ends or Close; it closes ln, and waits for the requests under way, cutting
// off those that take long.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	err := httpio.Serve(ctx, ln, s, s.log, s.shut)
	s.shut() // Serve may have ended without it
	s.wg.Wait()
	return fault.Wrap("control.Serve", err)
}

// Close ends every stream and Serve.
func (s *Server) Close() error {
	s.shut()
	err := errors.Join(s.services.Close(), s.mcp.Close())
	s.wg.Wait()
	return fault.Wrap("control.Close", err)
}

// shut refuses further work and ends what is under way.
func (s *Server) shut() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
}

// ServeHTTP passes a request to the handler of the host that it names; other hosts are refused.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if !defence.Off(defence.ControlAgents) {
		h.Set("Origin-Agent-Cluster", "?1")
	}
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	where, handle := s.hosts.Find(r.Host)
	if where == origin.None && defence.Off(defence.ControlHost) {
		where = origin.Console
	}
	if where == origin.None {
		h.Set("Connection", "close")
		problem.Write(w, problem.Refuse(http.StatusMisdirectedRequest, fault.Denied, "no such host is served here", "Open "+s.hosts.Console()+"."))
		return
	}
	// net/http recognises only its own type of body. If another type is closed early, it takes the unread
	// rest for the connection's next request, so its own is put back.
	own := r.Body
	defer func() { r.Body = own }()
	r.Body = httpio.NewBody(own, w)
	s.hosts.TakeBackCookies(w, r, where)
	switch where {
	case origin.Console:
		s.console.ServeHTTP(w, r)
	case origin.Desktop:
		s.serveDesktop(w, r, handle)
	default:
		s.bare.ServeHTTP(w, r)
	}
}

func (s *Server) routes() error {
	problem.UseInAPI()
	mux := chi.NewRouter()
	mux.Use(headAsGet)
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, problem.Refuse(http.StatusNotFound, fault.NotFound, "there is nothing here", ""))
	})
	noMethod := func(w http.ResponseWriter, r *http.Request) {
		methods := allowed(mux, r.URL.Path)
		if len(methods) == 0 { // it is none of the API's
			methods = []string{http.MethodGet, http.MethodHead}
		}
		problem.RefuseMethod(w, r.Method+" is not for this address", methods...)
	}
	mux.MethodNotAllowed(noMethod)
	cfg := huma.DefaultConfig("ChoirOS", s.options.Version)
	format := huma.Format{Marshal: httpio.WriteJSON, Unmarshal: json.Unmarshal}
	cfg.Formats = map[string]huma.Format{"application/json": format, "json": format}
	if defence.Off(defence.ControlBodies) {
		cfg.Formats["text/plain"] = format
	}
	cfg.Info.Description = "What a person can ask of their computers. Errors are RFC 9457 problems with code, hint and field."
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath, cfg.CreateHooks = "", "", "", nil
	cfg.Servers = []*huma.Server{{URL: s.hosts.Console(), Description: "This machine's console; its address without a name is as good for programs."}}
	cfg.FieldsOptionalByDefault = true
	cfg.RejectUnknownQueryParameters = true
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer"},
		"session": {Type: "apiKey", In: "cookie", Name: consoleCookie},
	}
	cfg.Security = []map[string][]string{{"token": {}}, {"session": {}}}
	hapi := humachi.New(mux, cfg)
	for _, register := range []func(huma.API){s.routeAccount, s.routeEvents, s.routeFiles, s.routeExec, s.routeFrame} {
		register(hapi)
	}
	s.own = s.ownMethods()
	for _, m := range rpc.All() {
		m.Mount(httpBinding{s, hapi})
	}
	mux.Get("/api/schemas/*", s.serveSchema)
	mux.Get("/api/openapi.json", s.serveOpenAPI)
	for _, verb := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		mux.Method(verb, mcpPath, http.HandlerFunc(s.serveMCP))
	}
	s.mcp = mcp.New(s.options.Version, s.withCaller(mux, true), s.log)
	var err error
	if s.openapi, err = json.Marshal(hapi.OpenAPI()); err != nil {
		return fmt.Errorf("describe the API: %w", err)
	}

	console := chi.NewRouter()
	console.Use(headAsGet)
	console.Get("/health", s.serveHealth)
	console.Handle("/api/*", s.withCaller(mux, true))
	console.Handle(gitPath+"*", http.HandlerFunc(s.serveGit))
	console.NotFound(s.servePage)
	console.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		if len(allowed(mux, r.URL.Path)) > 0 { // a method that no standard names gets no further than here
			noMethod(w, r)
			return
		}
		s.servePage(w, r)
	})
	s.console = console
	bare := chi.NewRouter()
	bare.Use(headAsGet)
	bare.MethodNotAllowed(noMethod)
	bare.Get("/health", s.serveHealth)
	bare.Handle("/api/*", s.withCaller(mux, false))
	bare.Handle(gitPath+"*", http.HandlerFunc(s.serveGit))
	bare.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, problem.Refuse(http.StatusMisdirectedRequest, fault.Denied, "pages are not served under this host name", "Open "+s.hosts.Console()+"."))
	})
	s.bare = bare
	return nil
}

// headAsGet routes HEAD requests as GET; net/http discards the body.
func headAsGet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			chi.RouteContext(r.Context()).RouteMethod = http.MethodGet
		}
		next.ServeHTTP(w, r)
	})
}

// allowed lists the methods that an address supports.
func allowed(mux chi.Routes, at string) []string {
	var out []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if mux.Match(chi.NewRouteContext(), m, at) {
			out = append(out, m)
			if m == http.MethodGet {
				out = append(out, http.MethodHead)
			}
		}
	}
	return out
}

func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(view.Health{Status: "ok", Version: s.options.Version}) // the client has gone if this fails
}

func (s *Server) serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(s.openapi) // the client has gone if this fails
}
