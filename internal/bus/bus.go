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

// maxStoredEvent bounds a message of a stream, in bytes: contract.MaxEvent and the
// appender's headers.
const maxStoredEvent = 160 << 10

// Options say which server the bus is on: one of its own on Dir, or the one at
// URL.
type Options struct {
	Dir     string             // JetStream's store; created when missing
	KeysDir string             // operator and account keys; empty: "keys" beside Dir's content
	Keys    newfile.Durability // of keys that are new

	// URL is a server with JetStream that somebody else runs, instead of one on
	// Dir: nats://… on this machine, tls://… elsewhere, several of one cluster with
	// commas. See package external for what can't be done there.
	URL         string
	Credentials string // file with the credentials for URL; empty: those in it

	// Replicas is how many servers keep each log; 0 is 1. A server of its own
	// keeps one.
	Replicas int

	Logger *slog.Logger     // nil: discard
	Now    func() time.Time // by which credentials expire; nil: time.Now
}

// backend is a NATS server with JetStream, wherever it runs. What one can't do is
// an error with a hint, never a guess.
type backend interface {
	// Dial connects the control plane.
	Dial(...nats.Option) (*nats.Conn, error)
	// Client is a new connection for the protocol of one client.
	Client() (net.Conn, error)
	// Sign makes credentials of a user's claims, Revoke ends those of users.
	Sign(*jwt.UserClaims) (string, error)
	Revoke(now time.Time, users []string) error
	// Heard says whether anybody listens to a subject; true when that can't be found
	// out.
	Heard(subject string) bool
	// Opening calls open, which has a stream opened or made, and keeps the stream's files
	// whatever comes of that. Shut closes one and leaves its files, Remove deletes one; what
	// somebody else runs does not close it, and deletes it by remove. Looking calls look,
	// which reads or moves the files of streams that are closed, while no server is started.
	Opening(name string, open func() error) error
	Shut(name string) error
	Remove(name string, remove func() error) error
	Looking(look func() error) error
	// Files says why the logs are no files of this machine's.
	Files() error
	// Health says why nothing is stored now, Unread how many reads failed
	// without the reader being told.
	Health() error
	Unread() (uint64, error)
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
	live     *nats.Conn // on which events are said: what follows it there waits for all who listen

	mu       sync.Mutex
	grants   map[string][]grant // by principal
	attached map[string]int     // open bridges by principal
	closed   bool

	bridges sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

// Open starts a server on opts.Dir, or connects to the one at opts.URL. What a
// directory's store holds must be whole: see ReadStore.
// fault.InUse says that another process holds the directory.
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

// StreamConfig is the stream that holds a computer's log: one each, so that its
// files are damaged, set aside and made again without touching another's. It
// expires nothing and captures nothing that a client may publish.
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
		Duplicates: time.Second, // message ids only chain the messages of one try
		DenyDelete: true,        // a computer is deleted with its stream
		// Batch reads; only the control plane holds JetStream permissions.
		AllowDirect:        true,
		AllowAtomicPublish: true,
	}
}

// EnsureStream makes the stream of a computer's log unless it is there, kept by so
// many servers (Bus.Replicas).
func EnsureStream(ctx context.Context, js jetstream.JetStream, cid contract.CID, replicas int) error {
	want := StreamConfig(cid, replicas)
	s, err := js.Stream(ctx, want.Name)
	if err == nil {
		// An update writes the stream's description anew, whether it changes or not.
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

// EnsureStream opens the stream of a computer's log, which it makes unless it is there.
// What is stored of it stays stored when it can't be opened.
func (b *Bus) EnsureStream(ctx context.Context, cid contract.CID) error {
	return b.backend.Opening(contract.StreamLog(cid), func() error { return EnsureStream(ctx, b.streams, cid, b.replicas) })
}

// Shut closes the stream of a computer's log, which nobody has open: the server keeps
// nothing of it but the files, until EnsureStream opens it again. A server that
// somebody else runs keeps it open. Whatever was published before is stored first, or
// it is an error and nothing changes.
func (b *Bus) Shut(ctx context.Context, cid contract.CID) error {
	const op = "bus.Shut"
	if err := b.drain(ctx, cid); err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, b.backend.Shut(contract.StreamLog(cid)))
}

// drain returns when the server is done with what this connection published for a
// log: what comes in is taken in order, and this message, which is for another stream,
// is answered and not stored.
func (b *Bus) drain(ctx context.Context, cid contract.CID) error {
	m := nats.NewMsg(strings.TrimSuffix(contract.SubjectLogAll(cid), ">") + "drained")
	m.Header.Set(nats.ExpectedStreamHdr, "none")
	_, err := b.conn.RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil // it is not open
	}
	return err
}

// Heard says whether anybody listens to a subject. Who begins to listen afterwards
// is not counted.
func (b *Bus) Heard(subject string) bool { return b.backend.Heard(subject) }

// Say sends a message to all who listen to a subject, in the order in which it is
// called, and does not wait until they have it. While the server can't be reached
// messages are kept for it, up to a few megabytes.
func (b *Bus) Say(subject string, data []byte) error {
	return fault.Wrap("bus.Say", b.live.Publish(subject, data))
}

// Serves says whether the server has the stream of a computer's log open. One
// whose files come to their place while it runs is opened by EnsureStream.
func (b *Bus) Serves(ctx context.Context, cid contract.CID) (bool, error) {
	_, err := b.streams.Stream(ctx, contract.StreamLog(cid))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return err == nil, fault.Wrap("bus.Serves", err)
}

// Remove deletes a computer's log, should there be one, also one that is set apart or
// can't be opened. Nobody has it open.
func (b *Bus) Remove(ctx context.Context, cid contract.CID) error {
	return fault.Wrap("bus.Remove", b.backend.Remove(contract.StreamLog(cid), func() error {
		err := b.streams.DeleteStream(ctx, contract.StreamLog(cid))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	}))
}

// Look calls look, which reads or moves the files of logs that nobody has open
// (ReadStore, PutBack): while the server starts anew these are not what they were.
// It must not call Look again, and whatever else it does delays a start.
func (b *Bus) Look(look func() error) error { return b.backend.Looking(look) }

// Conn returns the control plane's connection, which may do anything.
func (b *Bus) Conn() *nats.Conn { return b.conn }

// Replicas is how many servers keep each log.
func (b *Bus) Replicas() int { return b.replicas }

// Files returns nil when the logs are files in the directory that the bus was opened
// on, for ReadStore; otherwise whoever would read them must not take what is not
// there for an empty log.
func (b *Bus) Files() error { return b.backend.Files() }

// Health returns nil while events are stored; fault.DiskFull or fault.Unavailable
// says that they are not, and that appends will fail.
func (b *Bus) Health() error { return b.backend.Health() }

// Unread counts the reads that failed because a block of a stream could not be
// opened or read, and says why the last one did. The server answers them as if
// there were no such message: an answer of that kind counts only if the number
// is after it what it was before.
func (b *Bus) Unread() (uint64, error) { return b.backend.Unread() }

// JetStream returns JetStream over the control plane's connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.streams }

// Close ends the bridges, the connection and the server, in that order, and
// releases the directory. It is safe to call twice.
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
