package identity

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"choir.dev/choiros/internal/fault"
)

// Newer returns fault.Newer if a newer version wrote the file at path, which nobody has
// open, and nil otherwise, also if that can't be told: then the file is missing or damaged,
// which other checks say. It writes nothing: closing an ordinary connection would move the
// WAL of a process that was killed into the file.
func Newer(ctx context.Context, path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	db, end, err := reading(abs)
	if err != nil {
		return nil
	}
	err = newer(ctx, db)
	if endErr := end(); err == nil {
		err = endErr
	}
	if !fault.Is(err, fault.Newer) {
		return nil
	}
	return fault.Wrap("identity.Newer", err)
}

// newer is Newer of an open file, and says what keeps the version from being read.
func newer(ctx context.Context, db *sql.DB) error {
	have, err := versionOf(ctx, db)
	if err == nil && have > len(migrations()) {
		err = fault.New("", fault.Newer, "Start the newer choir that wrote this data directory; this one leaves the data as they are.",
			fmt.Errorf("control.sqlite was written by a newer version of ChoirOS (version %d of the accounts; this one knows %d)", have, len(migrations())))
	}
	return err
}

func versionOf(ctx context.Context, db *sql.DB) (version int, err error) {
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return 0, fmt.Errorf("read the version of control.sqlite: %w", err)
	}
	return version, nil
}

// reading opens a file that nobody else has open, such that nothing is written: neither to
// the file nor to what is beside it. The caller calls end when it has read.
func reading(abs string) (db *sql.DB, end func() error, err error) {
	q := url.Values{"mode": {"ro"}}
	made := false // the index of the WAL, without which it can't be read
	if st, err := os.Stat(abs + "-wal"); err != nil || st.Size() == 0 {
		q.Set("immutable", "1") // otherwise SQLite would make the files of a WAL in order to read
	} else if _, err := os.Stat(abs + "-shm"); err == nil {
		q.Set("readonly_shm", "1")
	} else {
		made = true
	}
	if db, err = sql.Open("sqlite", (&url.URL{Scheme: "file", Path: abs, RawQuery: q.Encode()}).String()); err != nil {
		return nil, nil, err
	}
	return db, func() error {
		err := db.Close()
		if made {
			if rerr := os.Remove(abs + "-shm"); !errors.Is(rerr, os.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
		return err
	}, nil
}
