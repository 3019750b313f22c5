package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/process"
)

// Limits of the server and its stream.
const (
	maxPayload      = 1 << 20   // bytes of one message, headers included
	maxStoredEvent  = 160 << 10 // contract.MaxEvent and the appender's headers
	maxSubscription = 4096      // bytes of one protocol line
	readyTimeout    = 30 * time.Second
)

// Options says where the bus keeps its files.
type Options struct {
	Dir     string           // JetStream's store; created when missing
	KeysDir string           // operator and account keys; empty: "keys" beside Dir's content
	Logger  *slog.Logger     // nil: discard
	Now     func() time.Time // by which credentials expire; nil: time.Now
}

// Bus is an open server with its stream. Close it to stop everything it started.
type Bus struct {
	log      *slog.Logger
	now      func() time.Time
	dir      string
	lock     *os.File
	options  *server.Options
	resolver *server.MemAccResolver
	account  string
	operator nkeys.KeyPair
	signer   nkeys.KeyPair // signs user JWTs; of this process only
	nc       *nats.Conn
	js       jetstream.JetStream

	health    sync.Mutex     // guards the next four
	srv       *server.Server // replaced after its store failed
	broken    error          // why the store takes nothing, nil when it does
	unread    uint64         // reads of blocks that failed
	unreadWhy error          // why the last of them did
	heal      chan struct{}  // wakes the healer

	mu       sync.Mutex
	claims   *jwt.AccountClaims
	grants   map[string][]grant // by principal
	attached map[string]int     // open bridges by principal
	closed   bool

	bridges sync.WaitGroup
	healer  sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

// Open starts the server on opts.Dir. What its store holds must be whole: see
// ReadStore.
// fault.InUse says that another process holds the directory.
func Open(ctx context.Context, opts Options) (*Bus, error) {
	const op = "bus.Open"
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.KeysDir == "" {
		opts.KeysDir = filepath.Join(opts.Dir, "keys")
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fault.Wrap(op, err)
	}
	lock, err := lockDir(opts.Dir)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	b := &Bus{log: opts.Logger, now: opts.Now, dir: opts.Dir, lock: lock, heal: make(chan struct{}, 1), grants: map[string][]grant{}, attached: map[string]int{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if err := b.start(ctx, opts); err != nil {
		if cerr := b.Close(); cerr != nil {
			return nil, fault.New(op, fault.CodeOf(err), fault.HintOf(err), errors.Join(err, cerr))
		}
		return nil, fault.Wrap(op, err)
	}
	return b, nil
}

func (b *Bus) start(ctx context.Context, opts Options) error {
	keys, err := loadKeys(opts.KeysDir)
	if err != nil {
		return err
	}
	b.operator = keys.operator
	if b.signer, err = nkeys.CreateAccount(); err != nil {
		return fmt.Errorf("create signing key: %w", err)
	}
	operatorClaims, resolver, err := b.accounts(keys)
	if err != nil {
		return err
	}
	b.resolver = resolver
	systemID, err := keys.system.PublicKey()
	if err != nil {
		return fmt.Errorf("read system key: %w", err)
	}
	b.options = &server.Options{
		ServerName:       "choir",
		DontListen:       true,
		NoSigs:           true,
		NoLog:            true,
		TrustedOperators: []*jwt.OperatorClaims{operatorClaims},
		SystemAccount:    systemID,
		AccountResolver:  resolver,
		MaxPayload:       maxPayload,
		MaxControlLine:   maxSubscription,
		MaxPending:       16 << 20, // a slower reader than that is cut off and reads the log again
		WriteDeadline:    10 * time.Second,
		MaxConn:          20000,
		JetStream:        true,
		StoreDir:         opts.Dir,
		SyncAlways:       true,
		// Not what the server would choose: a share of the space free at start.
		JetStreamMaxMemory:     64 << 20,
		JetStreamMaxStore:      math.MaxInt64 / 2,
		DisableJetStreamBanner: true,
		JetStreamLimits: server.JSLimitOpts{
			MaxBatchInflightPerStream: 1000,
			MaxBatchInflightTotal:     2000,
		},
	}
	wait := readyTimeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	if err := b.startServer(wait); err != nil {
		return err
	}
	b.healer.Go(b.keepHealthy)
	return b.connect()
}

func (b *Bus) connect() error {
	user, err := nkeys.CreateUser()
	if err != nil {
		return fmt.Errorf("create control key: %w", err)
	}
	public, err := user.PublicKey()
	if err != nil {
		return fmt.Errorf("read control key: %w", err)
	}
	uc := jwt.NewUserClaims(public)
	uc.Name = "control"
	uc.IssuerAccount = b.account
	token, err := uc.Encode(b.signer)
	if err != nil {
		return fmt.Errorf("sign control credentials: %w", err)
	}
	b.nc, err = nats.Connect("", nats.InProcessServer(provider{b}), nats.Name("control"),
		nats.UserJWT(func() (string, error) { return token, nil }, user.Sign),
		nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.Timeout(10*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.log.Warn("bus connection", "error", err, "subject", subject)
		}))
	if err != nil {
		return fmt.Errorf("connect in process: %w", err)
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		return fmt.Errorf("open jetstream: %w", err)
	}
	return nil
}

// StreamConfig is the stream that holds a computer's log: one each, so that its
// files are damaged, set aside and made again without touching another's. It
// expires nothing and captures nothing that a client may publish.
func StreamConfig(cid contract.CID) jetstream.StreamConfig {
	subjects := contract.SubjectLogAll(cid)
	return jetstream.StreamConfig{
		Name:        contract.StreamLog(cid),
		Description: "A computer's log.",
		Subjects:    []string{subjects},
		Storage:     jetstream.FileStorage,
		Retention:   jetstream.LimitsPolicy,
		MaxMsgs:     -1, MaxBytes: -1, MaxMsgsPerSubject: -1,
		MaxMsgSize: maxStoredEvent,
		Discard:    jetstream.DiscardNew,
		Replicas:   1,
		Duplicates: time.Second, // message ids only chain the messages of one try
		DenyDelete: true,        // a computer is deleted with its stream
		RePublish:  &jetstream.RePublish{Source: subjects, Destination: contract.SubjectLive(cid)},
		// Batch reads; only the control plane holds JetStream permissions.
		AllowDirect:        true,
		AllowAtomicPublish: true,
	}
}

// EnsureStream makes the stream of a computer's log unless it is there.
func EnsureStream(ctx context.Context, js jetstream.JetStream, cid contract.CID) error {
	if _, err := js.CreateOrUpdateStream(ctx, StreamConfig(cid)); err != nil {
		return fmt.Errorf("make the stream %s: %w", contract.StreamLog(cid), err)
	}
	return nil
}

// Serves says whether the server has the stream of a computer's log open. One
// whose files come to their place while it runs is opened by EnsureStream.
func (b *Bus) Serves(ctx context.Context, cid contract.CID) (bool, error) {
	_, err := b.js.Stream(ctx, contract.StreamLog(cid))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return err == nil, fault.Wrap("bus.Serves", err)
}

// Conn returns the control plane's connection, which may do anything.
func (b *Bus) Conn() *nats.Conn { return b.nc }

// JetStream returns JetStream over the control plane's connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

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
	b.healer.Wait()
	if b.nc != nil {
		b.nc.Close()
	}
	if srv := b.server(); srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
	if err := process.Unlock(b.lock); err != nil {
		return fault.Wrap("bus.Close", err)
	}
	return nil
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "bus.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Wrap("lock", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		closeErr := f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.New("lock", fault.InUse, "Stop the other process, or use another data directory.",
				errors.Join(fmt.Errorf("%s is held by another process", dir), closeErr))
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), closeErr)
	}
	return f, nil
}
