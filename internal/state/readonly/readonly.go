// Package readonly opens SQLite files that are only to be read.
package readonly

import (
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver
)

// Open opens a file without writing to it: its WAL is not checkpointed either.
func Open(path string) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(abs); err != nil {
		return nil, err
	}
	q := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)", "query_only(1)"}}
	if st, err := os.Stat(abs + "-wal"); errors.Is(err, fs.ErrNotExist) || err == nil && st.Size() == 0 {
		q.Set("immutable", "1") // otherwise SQLite would make the files of a WAL in order to read
	} else if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: abs, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}
