package bus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/highwayhash"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus/embedded"
	"choir.dev/choiros/internal/fault"
)

// The server repairs its store by cutting a file off at an invalid record, and by leaving
// out what it can't read. To decide whether that may happen, the files are read here first,
// without the server and without writing.

// A record of a block consists of its length (whose top bit says that there are headers),
// the position, the time, the length of the subject, the subject, the length of the headers
// if there are any, headers and data, and a checksum.
const (
	recordHeader   = 22
	recordSum      = 8
	recordMost     = 32 << 20
	bitHeaders     = 1 << 31
	bitErased      = 1 << 63
	bitTombstone   = 1 << 62
	recordSmallest = recordHeader + recordSum
)

// Message is one message of a stream as stored in its file.
type Message struct {
	// Of is the computer whose stream contains it; empty: the one stream for all computers
	// of earlier versions.
	Of       contract.CID
	Position uint64
	Subject  string
	Header   []byte // as in the NATS protocol; empty: none
	Data     []byte // valid until the next message
	// Behind says that there is an invalid record before it in the newest block. The
	// server would cut the block off there; a crash may have left it, unacknowledged.
	Behind bool
}

// PutBack restores the files that a server deleted because it could not open a computer's
// log, or any log if cid is empty, in the store at dir. It must be called before the files
// are inspected, because the process that opened the log may have died before it restored
// them. Nobody may be opening that log.
func PutBack(dir string, cid contract.CID) error {
	name := ""
	if cid != "" {
		name = contract.StreamLog(cid)
	}
	return fault.Wrap("bus.PutBack", embedded.PutBack(dir, name))
}

// Held returns the streams of a store that have files which exist only under their second
// names, until PutBack restores them. It writes nothing.
func Held(dir string) ([]string, error) {
	names, err := embedded.Held(dir)
	return names, fault.Wrap("bus.Held", err)
}

// Damage describes what is wrong with a part of the data directory.
type Damage struct {
	File string `json:"file"` // relative to the data directory
	What string `json:"what"`
	// Of is the computer whose log is damaged; empty: all of them.
	Of contract.CID `json:"-"`
	// Newest says that the damage is in the newest block, where a killed process may have
	// left it: it counts only if an acknowledged event is missing.
	Newest bool `json:"-"`
}

func (d Damage) String() string { return d.File + ": " + d.What }

// ReadStore calls each with every message in the store's files, stream by stream and in
// order within each, and returns what is damaged. With only, it reads the streams that can
// contain that computer's log. An incomplete record at the end of a newest block is no
// damage by itself, because a killed process leaves one. The files are only read.
func ReadStore(ctx context.Context, dir string, only contract.CID, each func(Message) error) ([]Damage, error) {
	return readStreams(ctx, dir, func(s Stream) bool { return only == "" || s.Of == only || s.Of == "" }, each)
}

func readStreams(ctx context.Context, dir string, want func(Stream) bool, each func(Message) error) ([]Damage, error) {
	const op = "bus.ReadStore"
	streams, err := Streams(dir)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	var damage []Damage
	accounts, places := map[string]bool{}, map[contract.CID]int{}
	for _, s := range streams {
		if !want(s) {
			continue
		}
		accounts[s.Account] = true
		if places[s.Of]++; places[s.Of] == 2 && s.Of != "" {
			damage = append(damage, Damage{File: filepath.Join("nats", s.Path), What: "this log is there twice", Of: s.Of})
		}
		d, err := readStream(ctx, dir, s, each)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		damage = append(damage, d...)
	}
	if len(accounts) > 1 {
		damage = append(damage, Damage{File: "nats", What: fmt.Sprintf("the streams of %d accounts", len(accounts))})
	}
	return damage, nil
}

// Stream is a directory that holds a stream.
type Stream struct {
	Of      contract.CID // the computer whose log it is; empty: the one stream for all computers
	Account string
	Path    string // relative to the store
	Apart   bool   // whether it was moved to where the server does not see it
}

func (s Stream) name() string { return filepath.Base(s.Path) }

// apartDir is the directory in which the server does not look.
const apartDir = embedded.ApartDir

// MovedPath returns where the same stream belongs when it is moved out of the server's sight,
// or back. n distinguishes several copies that are out of sight.
func (s Stream) MovedPath(n int) string {
	switch {
	case s.Apart:
		return filepath.Join("jetstream", s.Account, "streams", s.name())
	case n > 0:
		return filepath.Join(apartDir, fmt.Sprintf("%s.%d", s.Account, n), s.name())
	}
	return filepath.Join(apartDir, s.Account, s.name())
}

// Streams lists the streams of a store, including those out of the server's sight.
func Streams(dir string) ([]Stream, error) {
	const op = "bus.Streams"
	var out []Stream
	for _, pattern := range []string{filepath.Join("jetstream", "*", "streams"), filepath.Join(apartDir, "*")} {
		parents, err := fs.Glob(os.DirFS(dir), pattern)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		for _, parent := range parents {
			entries, err := os.ReadDir(filepath.Join(dir, parent))
			if err != nil {
				return nil, fault.Wrap(op, err)
			}
			account, _, _ := strings.Cut(filepath.Base(strings.TrimSuffix(parent, "/streams")), ".")
			for _, e := range entries {
				of, is := strings.CutPrefix(e.Name(), contract.StreamLog(""))
				s := Stream{Of: contract.CID(of), Account: account, Path: filepath.Join(parent, e.Name()), Apart: strings.HasPrefix(parent, apartDir)}
				switch {
				case e.Name() == contract.StreamShared:
					s.Of = ""
				case !is || s.Of.Validate() != nil:
					continue // the server may keep others, which are not ours to judge
				}
				out = append(out, s)
			}
		}
	}
	return out, nil
}

// StoreAccounts returns the accounts whose streams the store contains.
func StoreAccounts(dir string) ([]string, error) {
	streams, err := Streams(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range streams {
		out = append(out, s.Account)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

type block struct {
	path  string
	index uint64
}

func readStream(ctx context.Context, dir string, s Stream, each func(Message) error) ([]Damage, error) {
	stream := filepath.Join(dir, s.Path)
	var damage []Damage
	tell := func(path string, newest bool, format string, args ...any) {
		file := filepath.Join("nats", strings.TrimPrefix(path, dir+"/"))
		damage = append(damage, Damage{File: file, What: fmt.Sprintf(format, args...), Of: s.Of, Newest: newest})
	}
	entries, err := os.ReadDir(filepath.Join(stream, "msgs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var blocks []block
	for _, e := range entries {
		number, is := strings.CutSuffix(e.Name(), ".blk")
		if index, err := strconv.ParseUint(number, 10, 32); is && err == nil {
			blocks = append(blocks, block{filepath.Join(stream, "msgs", e.Name()), index})
		}
	}
	slices.SortFunc(blocks, func(a, b block) int { return int(int64(a.index) - int64(b.index)) })
	if d := checkDescription(stream); d != "" {
		tell(filepath.Join(stream, "meta.inf"), false, "%s", d)
	}
	removed, err := tombstones(ctx, s.name(), blocks)
	if err != nil {
		return nil, err
	}
	last := uint64(0)
	for i, b := range blocks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if i > 0 && b.index != blocks[i-1].index+1 {
			tell(filepath.Dir(b.path), false, "no blocks between %d and %d", blocks[i-1].index, b.index)
		}
		buf, err := os.ReadFile(b.path)
		if err != nil {
			return nil, err
		}
		newest, behind := i == len(blocks)-1, false
		for at := 0; at < len(buf); {
			r, size, bad := readRecord(s.name(), b.index, buf[at:])
			if bad == "" && !r.skip && r.Position <= last {
				bad = fmt.Sprintf("position %d behind %d", r.Position, last)
			}
			if bad != "" {
				next := resume(s.name(), b.index, buf, at+1)
				if !newest || next < len(buf) || behind {
					tell(b.path, newest, "%s at byte %d; %d bytes can't be read", bad, at, next-at)
				}
				behind, at = newest, next
				continue
			}
			at += size
			if r.skip || removed[r.Position] {
				continue
			}
			last, r.Behind, r.Of = r.Position, behind, s.Of
			if err := each(r.Message); err != nil {
				return nil, err
			}
		}
	}
	return damage, nil
}

// record is one record of a block; skip marks records that are no messages.
type record struct {
	Message
	skip      bool
	tombstone bool
}

// readRecord parses the record at the beginning of b, or says what is wrong with it.
func readRecord(stream string, index uint64, b []byte) (r record, size int, bad string) {
	if len(b) < recordSmallest {
		return r, 0, "a record is cut off"
	}
	le := binary.LittleEndian
	length := le.Uint32(b)
	headers := length&bitHeaders != 0
	length &^= bitHeaders
	subject := int(le.Uint16(b[20:]))
	fixed := subject
	if headers {
		fixed += 4
	}
	if length < recordSmallest || length > recordMost || int(length)-recordHeader-recordSum < fixed {
		return r, 0, "a record's length is impossible"
	}
	if int(length) > len(b) {
		return r, 0, "a record is cut off"
	}
	size = int(length)
	body := b[recordHeader : size-recordSum]
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, index))
	hh, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return r, 0, err.Error()
	}
	_, _ = hh.Write(b[4:20]) // writing to a hash never fails
	_, _ = hh.Write(body[:subject])
	_, _ = hh.Write(body[fixed:])
	if !bytes.Equal(hh.Sum(nil), b[size-recordSum:size]) {
		return r, 0, "a record's checksum does not match"
	}
	position := le.Uint64(b[4:])
	r.tombstone = position&bitTombstone != 0
	r.skip = r.tombstone || position&bitErased != 0 || position == 0
	r.Position = position &^ (bitTombstone | bitErased)
	r.Subject, r.Data = string(body[:subject]), body[fixed:]
	if headers {
		n := int(le.Uint32(body[subject:]))
		if n > len(r.Data) {
			return r, 0, "a record's headers are longer than it is"
		}
		r.Header, r.Data = r.Data[:n], r.Data[n:]
	}
	return r, size, ""
}

// resume finds the beginning of the next valid record. Bytes that merely look like a record
// do not have the right checksum.
func resume(stream string, index uint64, buf []byte, from int) int {
	for at := from; at+recordSmallest <= len(buf); at++ {
		if _, _, bad := readRecord(stream, index, buf[at:]); bad == "" {
			return at
		}
	}
	return len(buf)
}

// tombstones returns the positions of messages that were removed after they had been
// stored: a server that was killed in the middle of a batch removes the batch's beginning.
func tombstones(ctx context.Context, stream string, blocks []block) (map[uint64]bool, error) {
	out := map[uint64]bool{}
	for _, b := range blocks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		buf, err := os.ReadFile(b.path)
		if err != nil {
			return nil, err
		}
		le := binary.LittleEndian
		for at := 0; at+recordSmallest <= len(buf); {
			size := int(le.Uint32(buf[at:]) &^ bitHeaders)
			if size < recordSmallest || size > len(buf)-at {
				break // readStream reports it
			}
			if le.Uint64(buf[at+4:])&bitTombstone != 0 {
				if r, _, bad := readRecord(stream, b.index, buf[at:]); bad == "" {
					out[r.Position] = true
				}
			}
			at += size
		}
	}
	return out, nil
}

// checkDescription says what is wrong with a stream's description, without which the server
// ignores the stream.
func checkDescription(stream string) string {
	meta, err := os.ReadFile(filepath.Join(stream, "meta.inf"))
	if err != nil {
		return "the stream's description can't be read"
	}
	sum, err := os.ReadFile(filepath.Join(stream, "meta.sum"))
	if err != nil {
		return "its checksum can't be read"
	}
	name := filepath.Base(stream)
	want, err := embedded.SumOf(name, meta)
	switch {
	case err != nil:
		return err.Error()
	case want != string(sum) && !embedded.ChangedOver(name, meta, string(sum)): // such a change is finished when the server starts
		return "its checksum does not match"
	}
	return ""
}
