package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus/embedded"
	"choir.dev/choiros/internal/bus/external"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/newfile"
)

// maxStoredEvent bounds a message of a stream, in bytes: contract.MaxEvent and the headers
// that the ledger adds.
const maxStoredEvent = 160 << 10

// Options say which server the bus uses: an embedded one that stores in Dir, or the one at
// URL.
type Options struct {
	Dir     string             // JetStream's store; created when missing
	KeysDir string             // operator and account keys; empty: "keys" beside Dir's content
	Keys    newfile.Durability // how new keys are made durable

	// URL is a server with JetStream that somebody else runs, instead of an embedded one:
	// nats://… on this machine, tls://… elsewhere, several of one cluster separated by
	// commas. Package external says what is not available there.
	URL         string
	Credentials string // the file with the credentials for URL; empty: those in the URL

	// Replicas is how many servers store each log; 0 means 1. An embedded server is always
	// the only one.
	Replicas int

	Logger *slog.Logger     // nil: discard
	Now    func() time.Time // the clock by which credentials expire; nil: time.Now
}

// backend is a NATS server with JetStream, embedded or external. What a backend can't do is
// an error with a hint.
type backend interface {
	// Dial connects the control plane.
	Dial(...nats.Option) (*nats.Conn, error)
	// Client opens a new connection for the protocol of one client.
	Client() (net.Conn, error)
	// Sign makes credentials from a user's claims; Revoke revokes those of users.
	Sign(*jwt.UserClaims) (string, error)
	Revoke(now time.Time, users []string) error
	// Subscribed reports whether anybody is subscribed to a subject; true when that is not
	// known.
	Subscribed(subject string) bool
	// OpenStream calls open, which makes the server open or create a stream, and preserves
	// the stream's files whatever happens. CloseStream closes a stream and leaves its files;
	// Remove deletes one. An external server does not close streams, and deletes one
	// through remove. WithFiles calls use, which reads or moves files of closed streams,
	// while no server is being started.
	OpenStream(name string, open func() error) error
	CloseStream(name string) error
	Remove(name string, remove func() error) error
	WithFiles(use func() error) error
	// Files returns why the logs are no files of this machine; nil if they are.
	Files() error
	// Health returns why nothing can be stored now; FailedReads returns how many reads
	// failed without an error to the reader.
	Health() error
	FailedReads() (uint64, error)
	Close() error
}

// Bus is an open bus. Close it to stop everything it started.
type Bus struct {
	log      *slog.Logger
	now      func() time.Time
	backend  backend
	replicas int
	conn     *nats.Conn
	streams  jetstream.JetStream
	live     *nats.Conn // on which live events are published: a message behind one waits until it has reached all subscribers

	mu       sync.Mutex
	grants   map[string][]grant // by principal
	attached map[string]int     // client connections by principal
	closed   bool

	bridges sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

// Open starts a server on opts.Dir, or connects to the one at opts.URL. The store in a
// directory must be undamaged: see ReadStore. The error is fault.InUse when another process
// has the directory open.
func Open(ctx context.Context, opts Options) (*Bus, error) {
	const op = "bus.Open"
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Replicas == 0 {
		opts.Replicas = 1
	}
	if err := opts.check(); err != nil {
		return nil, fault.New(op, fault.Invalid, "Give a directory, or the URL of a server.", err)
	}
	on, err := opts.open(ctx)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	b := &Bus{log: opts.Logger, now: opts.Now, backend: on, replicas: opts.Replicas, grants: map[string][]grant{}, attached: map[string]int{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if err := b.connect(ctx); err != nil {
		if cerr := b.Close(); cerr != nil {
			return nil, fault.New(op, fault.CodeOf(err), fault.HintOf(err), errors.Join(err, cerr))
		}
		return nil, fault.Wrap(op, err)
	}
	return b, nil
}

func (o Options) check() error {
	switch {
	case o.URL == "" && o.Dir == "":
		return errors.New("neither a directory nor a URL is given")
	case o.URL != "" && (o.Dir != "" || o.KeysDir != ""):
		return errors.New("a directory and a URL are given; the log is in one place")
	case o.URL == "" && o.Credentials != "":
		return errors.New("credentials are for the server at a URL")
	case o.Replicas < 1 || o.Replicas > 5:
		return fmt.Errorf("replicas: is %d; 1 to 5 servers keep a log", o.Replicas)
	case o.URL == "" && o.Replicas > 1:
		return fmt.Errorf("replicas: is %d; a server of its own keeps one", o.Replicas)
	}
	return nil
}

func (o Options) open(ctx context.Context) (backend, error) {
	if o.URL != "" {
		return external.Open(external.Options{URL: o.URL, Credentials: o.Credentials, Largest: maxStoredEvent})
	}
	if o.KeysDir == "" {
		o.KeysDir = filepath.Join(o.Dir, "keys")
	}
	return embedded.Open(ctx, embedded.Options{Dir: o.Dir, KeysDir: o.KeysDir, Keys: o.Keys, Logger: o.Logger, Longest: MaxTTL})
}

func (b *Bus) connect(ctx context.Context) (err error) {
	if b.live, err = b.dial("live"); err != nil {
		return err
	}
	if b.conn, err = b.dial("control"); err != nil {
		return err
	}
	if b.streams, err = jetstream.New(b.conn); err != nil {
		return fmt.Errorf("open jetstream: %w", err)
	}
	if _, err := b.streams.AccountInfo(ctx); err != nil {
		return fault.New("jetstream", fault.Missing, "Give a server with JetStream, and credentials that may use it.", err)
	}
	return nil
}

func (b *Bus) dial(name string) (*nats.Conn, error) {
	return b.backend.Dial(nats.Name(name),
		nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.Timeout(10*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.log.Warn("bus connection", "connection", name, "error", err, "subject", subject)
		}))
}

// StreamConfig is the configuration of the stream that holds a computer's log. Each log has
// a stream of its own, so that its files can be damaged, moved aside and made anew without
// touching another's. Messages never expire, and none of the stream's subjects may be
// published by clients.
func StreamConfig(cid contract.CID, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:         contract.StreamLog(cid),
		Description:  "A computer's log.",
		Subjects:     []string{contract.SubjectLogAll(cid)},
		Storage:      jetstream.FileStorage,
		Retention:    jetstream.LimitsPolicy,
		MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1,
		MaxMsgSize: maxStoredEvent,
		Discard:    jetstream.DiscardNew,
		Replicas:   max(1, replicas),
		Duplicates: time.Second, // message ids are used only to order the messages of one append
		DenyDelete: true,        // a computer is deleted with its stream
		// AllowDirect is for batch reads. Only the control plane has JetStream
		// permissions.
		AllowDirect:        true,
		AllowAtomicPublish: true,
	}
}

// EnsureStream makes the stream of a computer's log, stored by that many servers
// (Bus.Replicas), unless it exists.
func EnsureStream(ctx context.Context, js jetstream.JetStream, cid contract.CID, replicas int) error {
	want := StreamConfig(cid, replicas)
	s, err := js.Stream(ctx, want.Name)
	if err == nil {
		// An update rewrites the stream's description on disk even if nothing changes, so
		// it is avoided.
		have := s.CachedInfo().Config
		if have.Metadata = nil; reflect.DeepEqual(have, want) {
			return nil
		}
	}
	if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateOrUpdateStream(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("make the stream %s: %w", contract.StreamLog(cid), err)
	}
	return nil
}

// EnsureStream opens the stream of a computer's log, and makes it if it does not exist. Its
// messages are preserved if it can't be opened.
func (b *Bus) EnsureStream(ctx context.Context, cid contract.CID) error {
	return b.backend.OpenStream(contract.StreamLog(cid), func() error { return EnsureStream(ctx, b.streams, cid, b.replicas) })
}

// CloseLog closes the stream of a computer's log, which nobody may have open: the server keeps
// only its files until EnsureStream opens it again. An external server keeps it open.
// Everything that was published before is stored first; if that fails, nothing changes.
func (b *Bus) CloseLog(ctx context.Context, cid contract.CID) error {
	const op = "bus.CloseLog"
	if err := b.drain(ctx, cid); err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, b.backend.CloseStream(contract.StreamLog(cid)))
}

// drain returns when the server has processed what this connection published to a log. The
// server processes messages in order, and answers this one, which names another stream as
// expected, without storing it.
func (b *Bus) drain(ctx context.Context, cid contract.CID) error {
	m := nats.NewMsg(strings.TrimSuffix(contract.SubjectLogAll(cid), ">") + "drained")
	m.Header.Set(nats.ExpectedStreamHdr, "none")
	_, err := b.conn.RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil // the stream is not open
	}
	return err
}

// Subscribed reports whether anybody is subscribed to a subject. Later subscriptions do not
// count.
func (b *Bus) Subscribed(subject string) bool { return b.backend.Subscribed(subject) }

// Publish publishes a message to a subject, in the order of the calls, and does not wait for
// its delivery. While the server can't be reached, messages are buffered, up to a few
// megabytes.
func (b *Bus) Publish(subject string, data []byte) error {
	return fault.Wrap("bus.Publish", b.live.Publish(subject, data))
}

// Serves reports whether the server has the stream of a computer's log open. A stream whose
// files are moved into place while the server runs is opened by EnsureStream.
func (b *Bus) Serves(ctx context.Context, cid contract.CID) (bool, error) {
	_, err := b.streams.Stream(ctx, contract.StreamLog(cid))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return err == nil, fault.Wrap("bus.Serves", err)
}

// Remove deletes a computer's log if there is one, also if it was moved aside or can't be
// opened. Nobody may have it open.
func (b *Bus) Remove(ctx context.Context, cid contract.CID) error {
	return fault.Wrap("bus.Remove", b.backend.Remove(contract.StreamLog(cid), func() error {
		err := b.streams.DeleteStream(ctx, contract.StreamLog(cid))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	}))
}

// WithFiles calls use, which reads or moves files of logs that nobody has open (ReadStore,
// PutBack), while the server is not being restarted, which changes those files. use must
// not call WithFiles, and a restart waits for it.
func (b *Bus) WithFiles(use func() error) error { return b.backend.WithFiles(use) }

// Conn returns the control plane's connection, which has all permissions.
func (b *Bus) Conn() *nats.Conn { return b.conn }

// Replicas returns how many servers store each log.
func (b *Bus) Replicas() int { return b.replicas }

// Files returns nil if the logs are files in the bus's directory, which ReadStore can read.
// Otherwise a missing file does not mean that a log is empty.
func (b *Bus) Files() error { return b.backend.Files() }

// Health returns nil while events can be stored; otherwise fault.DiskFull or
// fault.Unavailable, and appends will fail.
func (b *Bus) Health() error { return b.backend.Health() }

// FailedReads returns how many reads failed because a block of a stream could not be opened or
// read, and why the last one failed. The server answers such reads as if there were no such
// message, so that answer counts only if the number is the same before and after.
func (b *Bus) FailedReads() (uint64, error) { return b.backend.FailedReads() }

// JetStream returns JetStream over the control plane's connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.streams }

// Close ends the clients' connections, the control plane's connections and the server, in
// that order, and releases the directory. It may be called twice.
func (b *Bus) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.bridges.Wait()
	for _, nc := range []*nats.Conn{b.live, b.conn} {
		if nc != nil {
			nc.Close()
		}
	}
	return fault.Wrap("bus.Close", b.backend.Close())
}
