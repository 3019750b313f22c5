package identity

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/newfile"
)

// The sums of rows show what a disk changed, but not that rows are missing: an older copy of
// the file, or one whose WAL lost its end, is whole in itself. So each transaction that
// changes something counts itself in the file, and the count is written to a file beside it
// as well, once the transaction is on disk. A file of accounts that counts fewer changes than
// its head says is not the newest (docs/adr/0275).

// HeadFile is the name of the head, beside the file of accounts.
const HeadFile = "control.head"

const (
	headMagic = "choir-accounts-1"
	headSize  = 64 // one sector holds all of it
)

// changesSince is the schema version from which on changes are counted.
const changesSince = 7

// summedChanges are the tables that this version added.
var summedChanges = []summedTable{{"changes", []string{"one", "count"}}}

// addChanges is the migration that counts changes.
func addChanges() string {
	return `
CREATE TABLE changes (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  count INTEGER NOT NULL,
  sum   BLOB    NOT NULL DEFAULT x''
) STRICT;
` + summedChanges[0].triggers() + `
INSERT INTO changes (one, count) VALUES (1, 0);
`
}

// head is the file with the count of changes, open.
type head struct {
	mu     sync.Mutex
	file   *os.File
	count  int64
	err    error // why the count could not be written
	closed bool
}

func headPath(path string) string { return filepath.Join(filepath.Dir(path), HeadFile) }

func encodeHead(count int64) []byte {
	line := fmt.Sprintf("%s %020d ", headMagic, count)
	sum := sha256.Sum256([]byte(line))
	return fmt.Appendf(nil, "%-*s\n", headSize-1, line+hex.EncodeToString(sum[:8]))
}

// readHead reads the count of a head: fs.ErrNotExist when there is none, fault.Damaged when
// it does not hold together.
func readHead(file string) (int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	b, err := io.ReadAll(io.LimitReader(f, headSize+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	var count int64
	if _, err := fmt.Sscanf(string(b), headMagic+" %d", &count); err != nil || string(b) != string(encodeHead(count)) {
		return 0, fault.New("", fault.Damaged, "", errors.New("it does not hold together"))
	}
	return count, nil
}

// changes returns how many changes the file counts, -1 if it is of a version before that.
func changes(ctx context.Context, db *sql.DB) (count int64, err error) {
	var version int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil || version < changesSince {
		return -1, err
	}
	err = db.QueryRowContext(ctx, "SELECT count FROM changes").Scan(&count)
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.New("", fault.Damaged, "", errors.New("it does not say how often it was changed"))
	}
	return count, err
}

// HintOlder is what to do about a file of accounts that is whole, but not the newest, or not
// known to be.
const HintOlder = "Put the newest control.sqlite back with the control.head that belongs to it, or the whole data directory from a backup. Or run choir recover: it goes on with the accounts as they are, ends every session and says what to look at."

// OlderError says why a file of accounts that is whole does not count as the newest.
type OlderError struct {
	What error
}

func (e *OlderError) Error() string { return HeadFile + ": " + fault.Text(e.What) }
func (e *OlderError) Unwrap() error { return e.What }

func older(format string, args ...any) error {
	return fault.New("", fault.Damaged, HintOlder, &OlderError{fmt.Errorf(format, args...)})
}

// checkHead compares the count of changes in the file of accounts at path with its head. A
// file that has counted none yet needs no head.
func checkHead(ctx context.Context, db *sql.DB, path string) error {
	count, err := changes(ctx, db)
	if err != nil {
		return err
	}
	known, err := readHead(headPath(path))
	switch {
	case errors.Is(err, fs.ErrNotExist) && count <= 0:
		return nil
	case (err == nil || fault.Is(err, fault.Damaged)) && count < 0:
		return older("control.sqlite is an older copy, from before changes were counted")
	case errors.Is(err, fs.ErrNotExist):
		return older("it is gone, and nothing else tells whether control.sqlite is the newest")
	case fault.Is(err, fault.Damaged):
		return older("%w, and nothing else tells whether control.sqlite is the newest", err)
	case err != nil:
		return err
	case count < known:
		return older("control.sqlite is an older copy, or its control.sqlite-wal is gone or has lost its end: it holds %d changes, and %d were made", count, known)
	}
	return nil
}

// openHead opens the head of the store's file, which was compared with it, or makes it.
func (s *Store) openHead(ctx context.Context, fresh bool, on newfile.Durability) error {
	count, err := changes(ctx, s.db)
	if err != nil {
		return err
	}
	file := headPath(s.path)
	if _, err := os.Lstat(file); fresh || errors.Is(err, fs.ErrNotExist) {
		if err := newfile.Files(filepath.Dir(file), on, newfile.Content{Name: HeadFile, Bytes: encodeHead(count)}); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	s.head = &head{file: f, count: -1}
	s.head.write(count)
	return nil
}

// write writes a count that is on disk in the file of accounts. It is not synced: a head that
// a power cut takes back is older than the accounts, which is no damage. One that can't be
// written is as old, and what it was is said when the store closes.
func (h *head) write(count int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if count <= h.count {
		return // a later transaction was faster
	}
	if _, err := h.file.WriteAt(encodeHead(count), 0); err != nil {
		h.err = err
		return
	}
	h.count, h.err = count, nil
}

func (h *head) close() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	return errors.Join(h.err, h.file.Sync(), h.file.Close())
}

// counted runs f in a transaction and counts a change if f changed anything.
func counted(ctx context.Context, tx *sql.Tx, f func(*sql.Tx) error) (count int64, changed bool, err error) {
	var before int64
	if err := tx.QueryRowContext(ctx, "SELECT total_changes()").Scan(&before); err != nil {
		return 0, false, err
	}
	if err := f(tx); err != nil {
		return 0, false, err
	}
	err = tx.QueryRowContext(ctx, "UPDATE changes SET count = count + 1 WHERE total_changes() > ? RETURNING count", before).Scan(&count)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return count, err == nil, err
}

// Accept takes the file of accounts at path, which nobody has open, for the newest as it is.
// Every session and link ends: which of them had ended before nobody knows any more.
func Accept(ctx context.Context, path string) (err error) {
	const op = "identity.Accept"
	if path, err = filepath.Abs(path); err != nil {
		return fault.Wrap(op, err)
	}
	known, err := readHead(headPath(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !fault.Is(err, fault.Damaged) {
		return fault.Wrap(op, err)
	}
	s := &Store{path: path, now: time.Now}
	s.db = sql.OpenDB(connector{s})
	s.db.SetMaxOpenConns(1)
	defer func() { err = fault.Wrap(op, errors.Join(err, s.db.Close())) }()
	if err := check(ctx, s.db); err != nil {
		return err
	}
	if err := s.migrate(ctx, len(migrations())); err != nil { // an older copy may be of an earlier version
		return err
	}
	// The count goes on behind what the head says, so that what comes now is the newest.
	var count int64
	if err := s.tx(ctx, func(tx *sql.Tx) error {
		for _, table := range []string{"tickets", "sessions", "links"} {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+table); err != nil {
				return err
			}
		}
		return tx.QueryRowContext(ctx, "UPDATE changes SET count = max(count, ?) + 1 RETURNING count", known).Scan(&count)
	}); err != nil {
		return err
	}
	return newfile.Files(filepath.Dir(headPath(path)), newfile.Synced, newfile.Content{Name: HeadFile, Bytes: encodeHead(count)})
}
