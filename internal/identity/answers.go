package identity

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"modernc.org/sqlite"
)

// mostAnswers bounds how many answers are kept; when there would be more, all are dropped.
const mostAnswers = 10_000

// answers are what the file of accounts answered since anything in it changed. Each request
// asks who its caller is and what they may do, and nearly always nothing has changed since
// the last one.
//
// What is kept is exact: before an answer is given, the file is asked whether it was
// written since. That is done on a read-only connection, for which SQLite counts what every
// other connection commits, those of other programs too (PRAGMA data_version). So code that
// writes need not invalidate anything, and what was taken away is refused from the moment
// on at which taking it away returned.
type answers struct {
	mu sync.Mutex
	// watch is the connection and asks its prepared statement. They are used with mu held:
	// a pool of connections would take longer for this than the statement does.
	watch driver.Conn
	asks  driver.StmtQueryContext

	closed  bool
	version version // of the file when the kept answers were given
	kept    map[any]any
}

// version names what was committed to the file, as one connection counts it.
type version struct{ connection, commits int64 }

// remembered answers a question from memory or, if the file has changed since, by asking.
// The type of a key belongs to one question, and a key holds no secret. Answers that ask
// says not to keep are asked for each time: those about what does not exist, of which a
// stranger can name any number.
func remembered[K comparable, V any](ctx context.Context, s *Store, key K, ask func(context.Context) (v V, keep bool, err error)) (V, error) {
	var none V
	of, was, err := s.answers.look(s.path, key)
	if err != nil {
		return none, err
	}
	if v, ok := was.(V); ok {
		return v, nil
	}
	v, keep, err := ask(ctx)
	if err != nil {
		return none, err
	}
	if keep {
		s.answers.keep(of, key, v)
	}
	return v, nil
}

// look returns the version of the file and the answer kept for a key, nil for none. An
// answer that is read from the file after this is of this version or of a later one.
func (a *answers) look(path string, key any) (version, any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, err := a.now(path)
	if err != nil {
		clear(a.kept)
		return version{}, nil, errors.Join(err, a.release())
	}
	if v != a.version {
		clear(a.kept)
		a.version = v
	}
	return v, a.kept[key], nil
}

// now reads the version. It ignores the end of a request's context: it waits for nothing,
// and interrupting it would drop the answers kept for everybody.
func (a *answers) now(path string) (version, error) {
	if a.closed {
		return version{}, sql.ErrConnDone
	}
	if a.asks == nil {
		if err := a.open(path); err != nil {
			return version{}, err
		}
	}
	rows, err := a.asks.QueryContext(context.Background(), nil)
	if err != nil {
		return version{}, err
	}
	var commits [1]driver.Value
	err = rows.Next(commits[:])
	v := version{connection: a.version.connection}
	var counted bool
	v.commits, counted = commits[0].(int64)
	if err == nil && !counted {
		err = fmt.Errorf("the version of control.sqlite is a %T", commits[0])
	}
	return v, errors.Join(err, rows.Close())
}

// open opens the connection. Its count of commits starts anywhere, so versions carry the
// connection's number as well.
func (a *answers) open(path string) (err error) {
	a.version = version{connection: a.version.connection + 1}
	q := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)"}}
	to, err := sqlite.NewConnector((&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return err
	}
	if a.watch, err = to.Connect(context.Background()); err != nil {
		return err
	}
	asks, err := a.watch.Prepare("PRAGMA data_version")
	if err != nil {
		return err
	}
	a.asks, a.kept = asks.(driver.StmtQueryContext), map[any]any{}
	return nil
}

// keep keeps an answer for the version in which it was asked for, if that is still the
// version.
func (a *answers) keep(of version, key, v any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asks == nil || of != a.version {
		return
	}
	if len(a.kept) >= mostAnswers {
		clear(a.kept)
	}
	a.kept[key] = v
}

// release closes the connection, if there is one.
func (a *answers) release() (err error) {
	if a.asks != nil {
		err = a.asks.(driver.Stmt).Close()
	}
	if a.watch != nil {
		err = errors.Join(err, a.watch.Close())
	}
	a.asks, a.watch = nil, nil
	return err
}

// Close closes the connection. Afterwards every question is an error.
func (a *answers) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	clear(a.kept)
	return a.release()
}
