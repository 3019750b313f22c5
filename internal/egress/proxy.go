package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
)

// Options configures a Proxy. Decide and Logger are required.
type Options struct {
	// Decide records a decision: egress.allowed or egress.denied. It is called
	// before the first byte passes; an error refuses the tunnel.
	Decide func(ctx context.Context, s Scope, allowed bool, d contract.EgressDecided) error
	// Meter records what has passed a tunnel so far: when it ends and, while it moves
	// bytes, each Limits.Meter. An error ends the tunnel. nil: nothing is recorded.
	Meter func(ctx context.Context, s Scope, t Traffic) error

	Resolver Resolver // nil: the host's
	// Dial opens the connection to an address that was checked; nil: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// AllowPrivate are the addresses that may be reached although they are not public, such as a
	// mirror in the machine's own network. They do not replace a rule: the name must be allowed as
	// well.
	AllowPrivate []netip.AddrPort
	// Own returns this machine's addresses; nil asks the system.
	Own    func() ([]netip.Addr, error)
	Logger *slog.Logger
	Limits Limits
}

// Limits bounds tunnels. Zero fields mean the defaults.
type Limits struct {
	PerBox  int           // tunnels of one box at a time; 64
	Total   int           // tunnels of all boxes at a time; 1024
	Idle    time.Duration // without a byte in either direction; 5 minutes
	Hello   time.Duration // until the ClientHello is there; 10 s
	Dial    time.Duration // until connected; 10 s
	PerSec  float64       // decisions of one box per second, in the long run; 20
	Burst   int           // … and at once; 200
	Decided time.Duration // until a decision is recorded; 10 s
	Meter   time.Duration // between two records of one tunnel; 1 minute
}

func (l Limits) withDefaults() Limits {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	num := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	num(&l.PerBox, 64)
	num(&l.Total, 1024)
	num(&l.Burst, 200)
	def(&l.Idle, 5*time.Minute)
	def(&l.Hello, 10*time.Second)
	def(&l.Dial, 10*time.Second)
	def(&l.Decided, 10*time.Second)
	def(&l.Meter, time.Minute)
	if l.PerSec <= 0 {
		l.PerSec = 20
	}
	return l
}

// Scope says for which box a request is made; the host fills it in.
type Scope struct {
	CID  contract.CID
	Run  string
	Task string
	Box  string
	Kind contract.BoxKind
}

// Traffic is what has passed one tunnel so far, in bytes as seen from the box.
type Traffic struct {
	Tunnel   string // its id
	Target   Target
	Ended    bool
	Sent     int64
	Received int64
	Duration time.Duration
}

// Proxy lets boxes reach the network. It is safe for concurrent use.
type Proxy struct {
	opt    Options
	limits Limits

	mu      sync.Mutex
	open    map[*tunnel]struct{}
	count   int
	closed  bool
	tunnels sync.WaitGroup
}

// NewProxy returns a proxy; Close ends it.
func NewProxy(opt Options) (*Proxy, error) {
	if opt.Decide == nil || opt.Logger == nil {
		return nil, errors.New("egress.NewProxy: Decide and Logger are required")
	}
	if opt.Resolver == nil {
		opt.Resolver = rooted{net.DefaultResolver}
	}
	if opt.Dial == nil {
		opt.Dial = (&net.Dialer{}).DialContext
	}
	if opt.Own == nil {
		opt.Own = ownAddresses
	}
	return &Proxy{opt: opt, limits: opt.Limits.withDefaults(), open: map[*tunnel]struct{}{}}, nil
}

// Close ends every tunnel and waits for their ends.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	for t := range p.open {
		t.close()
	}
	p.mu.Unlock()
	p.tunnels.Wait()
	return nil
}

// CloseBox ends a box's tunnels.
func (p *Proxy) CloseBox(box string) { p.closeAll(func(s Scope) bool { return s.Box == box }) }

// CloseComputer ends a computer's tunnels and waits until what passed them has been
// recorded.
func (p *Proxy) CloseComputer(cid contract.CID) {
	for _, t := range p.closeAll(func(s Scope) bool { return s.CID == cid }) {
		<-t.done
	}
}

func (p *Proxy) closeAll(which func(Scope) bool) []*tunnel {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*tunnel
	for t := range p.open {
		if which(t.scope) {
			t.close()
			out = append(out, t)
		}
	}
	return out
}

// Handler serves CONNECT for one box under one policy, for as long as the box exists. Every other
// request, including plain HTTP through the proxy, is answered with 403.
func (p *Proxy) Handler(s Scope, policy Policy) http.Handler {
	h := &handler{proxy: p, scope: s, policy: policy, rate: rate.NewLimiter(rate.Limit(p.limits.PerSec), p.limits.Burst)}
	if !networked[s.Kind] && !defence.Off(defence.EgressKinds) {
		h.policy = Policy{Err: fmt.Errorf("a %s box has no network", s.Kind)}
	}
	return h
}

// networked are the kinds of box that can be granted a network.
var networked = map[contract.BoxKind]bool{
	contract.BoxTask: true, contract.BoxVerify: true, contract.BoxTerminal: true, contract.BoxScratch: true,
}

type handler struct {
	proxy  *Proxy
	scope  Scope
	policy Policy
	rate   *rate.Limiter
	mu     sync.Mutex
	count  int
}

// refusal says why a tunnel is not opened, and which status the box gets.
type refusal struct {
	status int
	reason string
}

func deny(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.rate.Allow() {
		http.Error(w, "too many connections are being opened; try again in a moment", http.StatusTooManyRequests)
		return
	}
	if r.Method != http.MethodConnect && !defence.Off(defence.EgressMethod) {
		host := r.Host
		if r.URL.Host != "" {
			host = r.URL.Host
		}
		h.refuse(w, r, h.decided(Target{}, host), deny(http.StatusForbidden, "plain HTTP is not let out; use https"))
		return
	}
	if !h.enter() {
		h.refuse(w, r, h.decided(Target{}, r.RequestURI), deny(http.StatusServiceUnavailable, "too many tunnels are open"))
		return
	}
	defer h.leave()
	target, err := ParseTarget(r.RequestURI)
	if err != nil {
		h.refuse(w, r, h.decided(Target{}, r.RequestURI), deny(http.StatusForbidden, "%v", err))
		return
	}
	d := h.decided(target, target.Host)
	rule, up, no := h.connect(r.Context(), target, &d)
	if no != nil {
		h.refuse(w, r, d, no)
		return
	}
	h.tunnel(w, target, rule, up, d)
}

// connect does what comes before the tunnel: it checks rule and name, resolves, and
// connects.
func (h *handler) connect(ctx context.Context, t Target, d *contract.EgressDecided) (Rule, net.Conn, *refusal) {
	if h.policy.Err != nil && !defence.Off(defence.EgressFailed) {
		return Rule{}, nil, deny(http.StatusForbidden, "the policy could not be loaded: %v", h.policy.Err)
	}
	rule, ok := h.policy.Allows(t)
	if !ok && !defence.Off(defence.EgressRules) {
		return Rule{}, nil, deny(http.StatusForbidden, "%s is not on this box's allowlist", t)
	}
	d.Rule = rule.String()
	addrs, err := h.proxy.addresses(ctx, t, h.policy.Anywhere)
	if errors.Is(err, errAddress) {
		return rule, nil, deny(http.StatusForbidden, "%v", err)
	}
	if err != nil {
		return rule, nil, deny(http.StatusBadGateway, "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, h.proxy.limits.Dial)
	defer cancel()
	for _, a := range addrs {
		d.Address = a.Addr().String()
		var up net.Conn
		if up, err = h.proxy.opt.Dial(ctx, "tcp", a.String()); err == nil {
			return rule, up, nil
		}
	}
	return rule, nil, deny(http.StatusBadGateway, "the host can't be reached: %v", err)
}

// decided returns the event of a decision, with the host in a form that every log accepts.
func (h *handler) decided(t Target, host string) contract.EgressDecided {
	if t.Host == "" {
		host = contract.Shorten(strings.Trim(strconv.QuoteToASCII(contract.Shorten(host, 200)), `"`), 900)
	}
	if host == "" {
		host = "(none)"
	}
	return contract.EgressDecided{Box: h.scope.Box, Kind: h.scope.Kind, Host: host, Port: int(t.Port)}
}

func (h *handler) decide(ctx context.Context, allowed bool, d contract.EgressDecided) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.proxy.limits.Decided)
	defer cancel()
	d.Reason = contract.Shorten(d.Reason, 400)
	return h.proxy.opt.Decide(ctx, h.scope, allowed, d)
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, d contract.EgressDecided, no *refusal) {
	d.Reason = no.reason
	if err := h.decide(r.Context(), false, d); err != nil {
		// The box is refused in either case, but it must be known that the refusal was not
		// recorded.
		h.proxy.opt.Logger.Error("a refusal could not be recorded", "box", h.scope.Box, "host", d.Host, "reason", d.Reason, "err", err)
	}
	w.Header().Set("Connection", "close")
	http.Error(w, "choir: "+no.reason, no.status)
}

func (h *handler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.proxy.mu.Lock()
	defer h.proxy.mu.Unlock()
	if h.proxy.closed || h.count >= h.proxy.limits.PerBox || h.proxy.count >= h.proxy.limits.Total {
		return false
	}
	h.count++
	h.proxy.count++
	h.proxy.tunnels.Add(1)
	return true
}

func (h *handler) leave() {
	h.mu.Lock()
	h.count--
	h.mu.Unlock()
	h.proxy.mu.Lock()
	h.proxy.count--
	h.proxy.mu.Unlock()
	h.proxy.tunnels.Done()
}

// tunnel takes over the connection, checks the first message of the box, records the decision, and
// only then passes bytes on.
func (h *handler) tunnel(w http.ResponseWriter, t Target, rule Rule, up net.Conn, d contract.EgressDecided) {
	down, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		up.Close()
		h.proxy.opt.Logger.Error("a tunnel could not be opened", "box", h.scope.Box, "err", err)
		http.Error(w, "choir: tunnels are not possible on this connection", http.StatusInternalServerError)
		return
	}
	tn := &tunnel{scope: h.scope, down: down, upstream: up, done: make(chan struct{})}
	defer close(tn.done)
	defer tn.close()
	if !h.proxy.track(tn) {
		return
	}
	defer h.proxy.untrack(tn)
	first, err := h.opening(tn, buf.Reader, t, rule)
	ctx := context.Background() // the request's context ended with the hijack
	if err != nil {
		d.Reason = err.Error()
		if err := h.decide(ctx, false, d); err != nil {
			h.proxy.opt.Logger.Error("a refusal could not be recorded", "box", h.scope.Box, "host", d.Host, "reason", d.Reason, "err", err)
		}
		return
	}
	if err := h.decide(ctx, true, d); err != nil {
		h.proxy.opt.Logger.Error("a tunnel was refused because the decision could not be recorded", "box", h.scope.Box, "host", d.Host, "err", err)
		return
	}
	metered := h.metered(tn, t)
	tn.run(buf.Reader, first, h.proxy.limits.Idle)
	metered()
}

// opening tells the box that it may speak and checks its first message.
func (h *handler) opening(tn *tunnel, r io.Reader, t Target, rule Rule) (first []byte, err error) {
	if err := tn.down.SetDeadline(time.Now().Add(h.proxy.limits.Hello)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(tn.down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return nil, err
	}
	if !rule.plain {
		raw, name, err := readHello(r)
		if errors.Is(err, errNotTLS) && defence.Off(defence.EgressTLS) {
			return raw, tn.down.SetDeadline(time.Time{})
		}
		if err == nil {
			err = checkName(t, name)
		}
		if err != nil {
			return nil, err
		}
		first = raw
	}
	return first, tn.down.SetDeadline(time.Time{})
}

func (p *Proxy) track(t *tunnel) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.open[t] = struct{}{}
	return true
}

func (p *Proxy) untrack(t *tunnel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, t)
}
