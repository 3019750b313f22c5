package bus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nkeys"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// The server repairs its store by cutting it off where a record does not hold,
// and by leaving out what it can't read. Whoever has to decide whether that may
// happen reads the files first, here, without the server and without a write.

// A record of a block: length (its top bit says that there are headers),
// position, time, length of the subject, subject, [length of the headers],
// headers and data, checksum.
const (
	recordHeader   = 22
	recordSum      = 8
	recordMost     = 32 << 20
	bitHeaders     = 1 << 31
	bitErased      = 1 << 63
	bitTombstone   = 1 << 62
	recordSmallest = recordHeader + recordSum
)

// Message is one message of the stream as its file holds it.
type Message struct {
	Position uint64
	Subject  string
	Header   []byte // as on the wire; empty: none
	Data     []byte // valid until the next message
	// Behind says that a record before it in the newest block does not hold. The
	// server would cut it off: a crash may have left it, unacknowledged.
	Behind bool
}

// Damage is what is wrong with a part of the data directory.
type Damage struct {
	File string `json:"file"` // relative to the data directory
	What string `json:"what"`
	// Newest says that it is in the newest block, where a killed process may have
	// left it: it counts only if an acknowledged event is missing.
	Newest bool `json:"-"`
}

func (d Damage) String() string { return d.File + ": " + d.What }

// ReadStore calls each with every message that the store's files hold, in
// order, and returns what is damaged. A torn end of the newest block is no
// damage by itself: a killed process leaves one. Files are only read.
func ReadStore(ctx context.Context, dir string, each func(Message) error) ([]Damage, error) {
	const op = "bus.ReadStore"
	streams, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", contract.StreamEvents))
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	var damage []Damage
	for _, stream := range streams {
		d, err := readStream(ctx, dir, stream, each)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		damage = append(damage, d...)
	}
	if len(streams) > 1 {
		damage = append(damage, Damage{File: "nats", What: fmt.Sprintf("the streams of %d accounts", len(streams))})
	}
	return damage, nil
}

// StoreAccounts names the accounts whose stream the store holds.
func StoreAccounts(dir string) ([]string, error) {
	streams, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", contract.StreamEvents))
	if err != nil {
		return nil, fault.Wrap("bus.StoreAccounts", err)
	}
	var out []string
	for _, s := range streams {
		out = append(out, filepath.Base(filepath.Dir(filepath.Dir(s))))
	}
	return out, nil
}

// Account is the account whose key a directory holds. Its errors are those of a
// key that can't be read.
func Account(keysDir string) (string, error) {
	pair, err := readKey(filepath.Join(keysDir, "account.nk"), nkeys.PrefixByteAccount)
	if err != nil {
		return "", fault.Wrap("bus.Account", err)
	}
	return pair.PublicKey()
}

type block struct {
	path  string
	index uint64
}

func readStream(ctx context.Context, dir, stream string, each func(Message) error) ([]Damage, error) {
	name := func(path string) string { return filepath.Join("nats", strings.TrimPrefix(path, dir+"/")) }
	var damage []Damage
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
		damage = append(damage, Damage{File: name(filepath.Join(stream, "meta.inf")), What: d})
	}
	removed, err := tombstones(ctx, blocks)
	if err != nil {
		return nil, err
	}
	last := uint64(0)
	for i, b := range blocks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if i > 0 && b.index != blocks[i-1].index+1 {
			damage = append(damage, Damage{File: name(filepath.Dir(b.path)), What: fmt.Sprintf("no blocks between %d and %d", blocks[i-1].index, b.index)})
		}
		buf, err := os.ReadFile(b.path)
		if err != nil {
			return nil, err
		}
		newest, behind := i == len(blocks)-1, false
		for at := 0; at < len(buf); {
			r, size, bad := readRecord(b.index, buf[at:])
			if bad == "" && !r.skip && r.Position <= last {
				bad = fmt.Sprintf("position %d behind %d", r.Position, last)
			}
			if bad != "" {
				next := resume(b.index, buf, at+1)
				if !newest || next < len(buf) || behind {
					damage = append(damage, Damage{File: name(b.path), What: fmt.Sprintf("%s at byte %d; %d bytes can't be read", bad, at, next-at), Newest: newest})
				}
				behind, at = newest, next
				continue
			}
			at += size
			if r.skip || removed[r.Position] {
				continue
			}
			last, r.Behind = r.Position, behind
			if err := each(r.Message); err != nil {
				return nil, err
			}
		}
	}
	return damage, nil
}

// record is one record of a block; skip marks those that are no message.
type record struct {
	Message
	skip      bool
	tombstone bool
}

// readRecord reads the record that b begins with, or says what is wrong with it.
func readRecord(index uint64, b []byte) (r record, size int, bad string) {
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
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", contract.StreamEvents, index))
	hh, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return r, 0, err.Error()
	}
	_, _ = hh.Write(b[4:20]) // a hash takes everything
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

// resume finds where the next whole record begins. What begins by accident does
// not end with the right checksum.
func resume(index uint64, buf []byte, from int) int {
	for at := from; at+recordSmallest <= len(buf); at++ {
		if _, _, bad := readRecord(index, buf[at:]); bad == "" {
			return at
		}
	}
	return len(buf)
}

// tombstones are the positions that were removed after they had been stored: a
// server that was killed in a batch takes back its beginning.
func tombstones(ctx context.Context, blocks []block) (map[uint64]bool, error) {
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
				break // readStream says it
			}
			if le.Uint64(buf[at+4:])&bitTombstone != 0 {
				if r, _, bad := readRecord(b.index, buf[at:]); bad == "" {
					out[r.Position] = true
				}
			}
			at += size
		}
	}
	return out, nil
}

// checkDescription says what is wrong with a stream's description, without
// which the server passes over the stream as if it were not there.
func checkDescription(stream string) string {
	meta, err := os.ReadFile(filepath.Join(stream, "meta.inf"))
	if err != nil {
		return "the stream's description can't be read"
	}
	sum, err := os.ReadFile(filepath.Join(stream, "meta.sum"))
	if err != nil {
		return "its checksum can't be read"
	}
	key := sha256.Sum256([]byte(contract.StreamEvents))
	hh, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return err.Error()
	}
	_, _ = hh.Write(meta)
	if hex.EncodeToString(hh.Sum(nil)) != string(sum) {
		return "its checksum does not match"
	}
	return ""
}
