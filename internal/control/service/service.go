package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/view"
)

// Bus is what the services need of NATS; *bus.Bus is one.
type Bus interface {
	Conn() *nats.Conn
	// Caller returns the computer and the principal that a request is from, as the server
	// and the bridge have checked them.
	Caller(msg *nats.Msg) (contract.CID, string, error)
	// Respond answers to the caller's own inbox only.
	Respond(msg *nats.Msg, payload []byte) error
}

// Computer is what the services need of a computer: the handlers of the methods that
// package rpc declares for desktops, and Exec for the commands that desktops start. Package
// control documents the methods.
type Computer interface {
	Methods() rpc.Table
	Last() uint64
	Exec(ctx context.Context, r view.ExecRequest, io view.ExecIO) (view.Exit, error)
}

// Options configure the services.
type Options struct {
	Bus Bus
	// Computer returns a computer, awake until ctx has ended.
	Computer func(ctx context.Context, cid contract.CID) (Computer, error)
	// May returns the caller behind a principal whose session is still open, and refuses
	// those who may not call the method.
	May func(ctx context.Context, m rpc.Declared, cid contract.CID, principal string) (rpc.Caller, error)
	// Take counts what a session appends, or refuses it.
	Take   func(ctx context.Context, principal string, cid contract.CID, bytes int64) error
	Logger *slog.Logger
}

// Limits.
const (
	atOnce     = 256              // requests under way, of all sessions
	atOnceEach = 16               // of one session
	quick      = 30 * time.Second // the limit of methods that are declared as rpc.Quick
	tickEvery  = time.Second
)

// Services answers requests on the bus until Close.
type Services struct {
	options   Options
	log       *slog.Logger
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	subs      []*nats.Subscription
	requests  chan *nats.Msg
	commands  commands
	following following
	own       rpc.Table // the methods that are answered here

	mu      sync.Mutex
	closed  bool
	total   int
	each    map[string]int // requests under way by principal
	watched map[contract.CID]*watch
}

type watch struct {
	n      int
	cancel context.CancelFunc
}

// Start subscribes and begins to answer. The caller must close the Services.
func Start(o Options) (*Services, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Services{options: o, log: o.Logger, requests: make(chan *nats.Msg, 4096), each: map[string]int{}, watched: map[contract.CID]*watch{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.commands.init(s)
	s.following.init()
	s.own = s.commands.methods()
	s.following.methods(s.own)
	for _, subject := range []string{"user.*.action", "svc.*.>"} {
		sub, err := o.Bus.Conn().ChanSubscribe(subject, s.requests)
		if err != nil {
			return nil, errors.Join(fault.Wrap("service.Start", err), s.Close())
		}
		s.subs = append(s.subs, sub)
	}
	words := make(chan *nats.Msg, wordsWaiting)
	sub, err := o.Bus.Conn().ChanSubscribe(contract.SubjectWords("*", "*"), words)
	if err != nil {
		return nil, errors.Join(fault.Wrap("service.Start", err), s.Close())
	}
	s.subs = append(s.subs, sub)
	s.wg.Go(func() { s.pass(words) })
	s.wg.Go(s.receive)
	return s, nil
}

// Methods returns the handlers of the methods that are answered here rather than by a
// computer.
func (s *Services) Methods() rpc.Table { return s.own }

// End ends the commands that an account's desktops started in a computer, or in
// all of them when cid is empty.
func (s *Services) End(account string, cid contract.CID) { s.commands.end(account, cid) }

// Close stops answering, ends the commands that were started, and waits for the requests
// and commands to end.
func (s *Services) Close() error {
	var errs []error
	for _, sub := range s.subs {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			errs = append(errs, err)
		}
	}
	s.mu.Lock()
	s.closed = true
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
	return errors.Join(errs...)
}

func (s *Services) receive() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case msg := <-s.requests:
			s.dispatch(msg)
		}
	}
}

// dispatch starts answering one request, if not too many are under way.
func (s *Services) dispatch(msg *nats.Msg) {
	cid, principal, err := s.options.Bus.Caller(msg)
	if err != nil {
		// The sender is not known to be who they claim, so they get no answer at all, not
		// even a refusal.
		s.log.Warn("a request was dropped", "subject", msg.Subject, "error", err)
		return
	}
	s.mu.Lock()
	switch {
	case s.closed:
		err = fault.New("", fault.Unavailable, "Try again.", errors.New("the control plane is closing"))
	case s.total >= atOnce || s.each[principal] >= atOnceEach:
		err = fault.New("", fault.Unavailable, "Try again.", errors.New("too many requests are under way"))
	default:
		s.total++
		s.each[principal]++
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if err != nil {
		s.answer(msg, nil, err)
		return
	}
	go func() {
		defer s.wg.Done()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.total--
			if s.each[principal]--; s.each[principal] == 0 {
				delete(s.each, principal)
			}
		}()
		var b []byte
		err := supervise.Safely(func() (err error) { b, err = s.handle(cid, principal, msg); return err })
		if stack := supervise.Stack(err); stack != "" {
			// A panic in one request must not end the process, and with it every
			// computer.
			s.log.Error("answering a request panicked", "computer", cid, "subject", msg.Subject, "error", err, "stack", stack)
			err = fault.New("", fault.Internal, "The log of choir says more.", errors.New("something went wrong inside"))
		}
		s.answer(msg, b, err)
	}()
}

func (s *Services) handle(cid contract.CID, principal string, msg *nats.Msg) ([]byte, error) {
	if len(msg.Data) > rpc.MaxBusRequest {
		return nil, fault.New("", fault.Invalid, "", fmt.Errorf("the request is %d bytes long; at most %d are allowed", len(msg.Data), rpc.MaxBusRequest))
	}
	name := "action"
	if rest, ok := strings.CutPrefix(msg.Subject, "svc."+string(cid)+"."); ok {
		name = rest
	}
	m, ok := rpc.ByService(name)
	if !ok {
		return nil, fault.New("", fault.NotFound, "", fmt.Errorf("there is no service %.80q", name))
	}
	d := m.About()
	limit := d.Limit
	if limit == rpc.Quick {
		limit = quick
	}
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	who, err := s.options.May(ctx, d, cid, principal)
	if err != nil {
		return nil, err
	}
	c, err := s.options.Computer(ctx, cid)
	if err != nil {
		return nil, err
	}
	if d.Effect == rpc.Stores || d.Effect == rpc.Governs {
		if err := s.options.Take(ctx, principal, cid, int64(len(msg.Data))); err != nil {
			return nil, err
		}
	}
	t := c.Methods()
	if d.Host {
		t = s.own
	}
	return m.Answer(ctx, t, who, msg.Data)
}

// answer sends an answer or an error.
func (s *Services) answer(msg *nats.Msg, b []byte, err error) {
	if err != nil {
		b = s.refusal(msg.Subject, err)
	}
	if err := s.options.Bus.Respond(msg, b); err != nil {
		s.log.Warn("an answer was not sent", "subject", msg.Subject, "error", err)
	}
}

type errorAnswer struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Field   string `json:"field,omitempty"`
}

// refusal describes an error as far as the desktop may see it. An error without a code is a
// defect of ours: its text goes to the log and is not shown.
func (s *Services) refusal(subject string, err error) []byte {
	p := view.Describe(err)
	if p.Code == string(fault.Internal) {
		s.log.Error("a request failed", "subject", subject, "error", err)
	}
	b, err := json.Marshal(errorAnswer{errorBody{Code: p.Code, Message: p.Detail, Hint: p.Hint, Field: p.Field}})
	if err != nil {
		return []byte(`{"error":{"code":"internal","message":"Something went wrong inside."}}`)
	}
	return b
}

// Watch publishes the last sequence of a computer's log every second until release is
// called, so that a desktop that missed the last event notices.
func (s *Services) Watch(cid contract.CID) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watched[cid]
	if w == nil {
		if s.closed {
			return func() {}
		}
		ctx, cancel := context.WithCancel(s.ctx)
		w = &watch{cancel: cancel}
		s.watched[cid] = w
		s.wg.Go(func() { s.tick(ctx, cid) })
	}
	w.n++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.n--; w.n == 0 {
			w.cancel()
			delete(s.watched, cid)
		}
	})
}

// tell publishes a computer's last sequence. It keeps the computer awake only while it does
// so.
func (s *Services) tell(ctx context.Context, cid contract.CID) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := s.options.Computer(ctx, cid)
	if err != nil {
		return
	}
	body := fmt.Sprintf(`{"sequence":%d}`, c.Last())
	if err := s.options.Bus.Conn().Publish(contract.SubjectTick(cid), []byte(body)); err != nil {
		s.log.Warn("a tick was not published", "computer", cid, "error", err)
	}
}

func (s *Services) tick(ctx context.Context, cid contract.CID) {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for {
		s.tell(ctx, cid)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
