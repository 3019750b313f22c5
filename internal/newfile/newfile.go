package newfile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver

	"choir.dev/choiros/internal/fault"
)

// Durability says who makes a new file durable.
type Durability int

const (
	// Synced means that it is on disk before it gets its name.
	Synced Durability = iota
	// Unsynced means that it has no meaning before the caller has synced all of it.
	Unsynced
)

// SQLite creates the database at path, in WAL mode and accessible to its owner only, unless
// there is content already, and returns whether it did. fill creates the initial content.
// The name is durable once the caller has synced the directory.
func SQLite(ctx context.Context, path string, on Durability, fill func(context.Context, *sql.DB) error) (made bool, err error) {
	const op = "newfile.SQLite"
	st, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fault.Wrap(op, err)
	}
	if err == nil && st.Size() > 0 {
		return false, nil
	}
	aside := path + ".new"
	// Files beside a database that does not exist belong to an earlier one.
	for _, p := range []string{aside, aside + "-wal", aside + "-shm", aside + "-journal", path + "-wal", path + "-shm", path + "-journal"} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fault.Wrap(op, err)
		}
	}
	f, err := os.OpenFile(aside, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, fault.Wrap(op, err)
	}
	err = errors.Join(f.Chmod(0o600), build(ctx, aside, fill))
	if err == nil && on == Synced {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(aside, path)
	}
	if err != nil {
		return false, errors.Join(fault.Wrap(op, err), os.Remove(aside))
	}
	return true, nil
}

// build fills a new database. It is discarded if anything fails, so it has no journal, and
// nothing is synced.
func build(ctx context.Context, path string, fill func(context.Context, *sql.DB) error) error {
	q := url.Values{"_pragma": {"journal_mode(OFF)", "synchronous(OFF)", "foreign_keys(1)", "temp_store(MEMORY)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	err = fill(ctx, db)
	if err == nil {
		var mode string
		if err = db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err == nil && mode != "wal" {
			err = fmt.Errorf("SQLite goes on in journal mode %s", mode)
		}
	}
	// Closing the last connection moves the WAL's content into the file.
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if st, err := os.Stat(path + "-wal"); err == nil && st.Size() > 0 {
		return errors.New("SQLite left something beside the file")
	}
	return nil
}

// Content is the name and content of a file to create in a directory.
type Content struct {
	Name  string
	Bytes []byte
}

// Files creates files that only their owner can access, in order. With Synced, no file gets
// its name before all are on disk, and all names are durable when it returns.
func Files(dir string, on Durability, files ...Content) (err error) {
	const op = "newfile.Files"
	var aside []string
	defer func() {
		for _, p := range aside {
			if rerr := os.Remove(p); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
	}()
	for _, c := range files {
		f, err := os.CreateTemp(dir, ".new-*") // 0600
		if err != nil {
			return fault.Wrap(op, err)
		}
		aside = append(aside, f.Name())
		_, err = f.Write(c.Bytes)
		if len(files) <= few && on == Synced {
			err = errors.Join(err, f.Sync())
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fault.Wrap(op, err)
		}
	}
	if len(files) > few && on == Synced {
		if err := Sync(dir); err != nil {
			return err
		}
	}
	for i, c := range files {
		if err := os.Rename(aside[i], filepath.Join(dir, c.Name)); err != nil {
			return fault.Wrap(op, err)
		}
	}
	if on == Unsynced {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, errors.Join(d.Sync(), d.Close()))
}

// few is up to how many files are synced one by one; more are synced with one call for the
// file system.
const few = 1

// Sync makes everything durable that was written to dir's file system, with one call for
// any number of files. It also waits for what others have written there.
func Sync(dir string) error {
	const op = "newfile.Sync"
	d, err := os.Open(dir)
	if err != nil {
		return fault.Wrap(op, err)
	}
	if err := errors.Join(unix.Syncfs(int(d.Fd())), d.Close()); err != nil {
		return fault.New(op, "", "", fmt.Errorf("sync %s: %w", dir, err))
	}
	return nil
}
