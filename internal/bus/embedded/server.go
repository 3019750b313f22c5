package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/newfile"
	"choir.dev/choiros/internal/process"
)

// Limits of the server.
const (
	MaxLine      = 4096    // bytes of one protocol line
	maxPayload   = 1 << 20 // bytes of one message, headers included
	readyTimeout = 30 * time.Second
)

// Options say where the server keeps its files.
type Options struct {
	Dir     string             // JetStream's store; created when missing
	KeysDir string             // operator and account keys
	Keys    newfile.Durability // how new keys are made durable
	Logger  *slog.Logger       // required
	// Longest is the longest lifetime of credentials; a revocation is remembered for that
	// long.
	Longest time.Duration
}

// Server is an open server. Close it to stop everything it started.
type Server struct {
	log      *slog.Logger
	dir      string
	longest  time.Duration
	lock     *os.File
	options  *server.Options
	resolver *server.MemAccResolver
	account  string
	operator nkeys.KeyPair
	signer   nkeys.KeyPair // signs user JWTs; made by this process

	health        sync.Mutex     // guards the next four
	srv           *server.Server // replaced after its store failed
	broken        error          // why the store accepts nothing; nil while it does
	failedReads   uint64         // how many reads of blocks failed
	failedReadWhy error          // why the last of them failed
	heal          chan struct{}  // wakes keepHealthy

	starting sync.RWMutex    // held while the server is restarted; read-locked while files of logs are read or moved
	opening  sync.Mutex      // held while the server opens or closes streams
	shut     map[string]bool // the streams that CloseStream has closed

	claiming sync.Mutex
	claims   *jwt.AccountClaims

	healer sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

// Open starts the server on opts.Dir. Its store must be undamaged: see bus.ReadStore. The
// error is fault.InUse when another process has the directory open.
func Open(ctx context.Context, opts Options) (*Server, error) {
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fault.Wrap("open", err)
	}
	lock, err := lockDir(opts.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{log: opts.Logger, dir: opts.Dir, longest: opts.Longest, lock: lock, heal: make(chan struct{}, 1), shut: map[string]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.start(ctx, opts); err != nil {
		if cerr := s.Close(); cerr != nil {
			return nil, fault.New("open", fault.CodeOf(err), fault.HintOf(err), errors.Join(err, cerr))
		}
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, opts Options) error {
	keys, err := loadKeys(opts.KeysDir, opts.Keys)
	if err != nil {
		return err
	}
	s.operator = keys.operator
	if s.signer, err = nkeys.CreateAccount(); err != nil {
		return fmt.Errorf("create signing key: %w", err)
	}
	operatorClaims, resolver, err := s.accounts(keys)
	if err != nil {
		return err
	}
	s.resolver = resolver
	systemID, err := keys.system.PublicKey()
	if err != nil {
		return fmt.Errorf("read system key: %w", err)
	}
	s.options = &server.Options{
		ServerName:       "choir",
		DontListen:       true,
		NoSigs:           true,
		NoLog:            true,
		TrustedOperators: []*jwt.OperatorClaims{operatorClaims},
		SystemAccount:    systemID,
		AccountResolver:  resolver,
		MaxPayload:       maxPayload,
		MaxControlLine:   MaxLine,
		MaxPending:       16 << 20, // a client that is further behind is disconnected and reads the log again
		WriteDeadline:    10 * time.Second,
		MaxConn:          20000,
		JetStream:        true,
		StoreDir:         opts.Dir,
		SyncAlways:       true,
		// By default the server would use a share of the space that is free at start.
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
	if err := s.startServer(wait); err != nil {
		return err
	}
	s.healer.Go(s.keepHealthy)
	return nil
}

// Dial connects the control plane, which has all permissions. The connection is
// re-established when the server was restarted.
func (s *Server) Dial(opts ...nats.Option) (*nats.Conn, error) {
	user, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("create control key: %w", err)
	}
	public, err := user.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("read control key: %w", err)
	}
	uc := jwt.NewUserClaims(public)
	uc.Name = "control"
	token, err := s.Sign(uc)
	if err != nil {
		return nil, fmt.Errorf("sign control credentials: %w", err)
	}
	nc, err := nats.Connect("", append([]nats.Option{nats.InProcessServer(provider{s}),
		nats.UserJWT(func() (string, error) { return token, nil }, user.Sign)}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect in process: %w", err)
	}
	return nc, nil
}

// Client opens a new connection to the server for the protocol of one client.
func (s *Server) Client() (net.Conn, error) {
	conn, err := s.server().InProcessConn()
	if err != nil {
		return nil, fault.New("connect", fault.Unavailable, "Try again.", err)
	}
	return conn, nil
}

// Subscribed reports whether anybody is subscribed to a subject.
func (s *Server) Subscribed(subject string) bool {
	acc, err := s.server().LookupAccount(s.account)
	return err != nil || acc.SubscriptionInterest(subject)
}

// Sign makes credentials from a user's claims. They become invalid when this process ends.
func (s *Server) Sign(uc *jwt.UserClaims) (string, error) {
	uc.IssuerAccount = s.account
	return uc.Encode(s.signer)
}

// Revoke invalidates the credentials of users at once and ends the connections that use
// them.
func (s *Server) Revoke(now time.Time, users []string) error {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	for user, at := range s.claims.Revocations { // forget revocations of credentials that have expired
		if now.Sub(time.Unix(at, 0)) > s.longest+time.Minute {
			delete(s.claims.Revocations, user)
		}
	}
	for _, user := range users {
		if defence.Off(defence.BusRevoked) {
			break
		}
		// The revocation is a second ahead because issue times are whole seconds; the key
		// is not used for later credentials.
		s.claims.RevokeAt(user, now.Add(time.Second))
	}
	token, err := s.claims.Encode(s.operator)
	if err != nil {
		return err
	}
	if err := s.resolver.Store(s.account, token); err != nil {
		return err
	}
	srv := s.server()
	acc, err := srv.LookupAccount(s.account)
	if err != nil {
		return err
	}
	decoded, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		return err
	}
	srv.UpdateAccountClaims(acc, decoded)
	return nil
}

// Files returns nil, because the logs are files in the server's directory.
func (s *Server) Files() error { return nil }

// Close ends the server and releases the directory.
func (s *Server) Close() error {
	s.cancel()
	s.healer.Wait()
	if srv := s.server(); srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
	return process.Unlock(s.lock)
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
