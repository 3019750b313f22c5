package objects

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"

	"choir.dev/choiros/internal/workspace/keeper/disk"
)

var packKinds = map[string]byte{"commit": 1, "tree": 2, "blob": 3}

// Twice is an error that says that a pack would have had an object twice.
type Twice struct {
	At []int // which of those that were to be written had become the same as an earlier one
}

func (*Twice) Error() string { return "a pack would have an object twice" }

// Distinct are objects of which none is the same as another, as far as one reading tells.
type Distinct struct {
	Objects []Object
	at      []int    // of each object given, where in Objects it or the one that it equals is
	same    []string // of each object given that equals an earlier one, its id
	of      []int    // of each of Objects, which of those given it is

	first map[string]int // by id, where in Objects it is
	large map[int64]int  // by size, where the one of that size is that was not read
}

// readAhead is the size, in bytes, above which an object is read before its turn only if another
// one has its size.
const readAhead = 1 << 20

// FindDistinct reads objects to find those that are the same: how many a pack has stands at its
// beginning, and which id an object has is known when it was read.
func FindDistinct(ctx context.Context, given []Object) (*Distinct, error) {
	d := &Distinct{at: make([]int, len(given)), same: make([]string, len(given)), first: map[string]int{}, large: map[int64]int{}}
	for i, o := range given {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		id := ""
		if !o.distinct {
			var err error
			if id, o, err = d.read(o); err != nil {
				return nil, err
			}
		}
		if at, there := d.first[id]; there && id != "" {
			d.at[i], d.same[i] = at, id
			continue
		}
		d.first[id], d.at[i] = len(d.Objects), len(d.Objects)
		d.Objects, d.of = append(d.Objects, o), append(d.of, i)
	}
	return d, nil
}

// read returns an object's id, or "" if it is left to the moment at which it is written. What is
// written of a file that is kept as chunks is the manifest that storing them gave.
func (d *Distinct) read(o Object) (string, Object, error) {
	r, size, err := o.Open()
	if errors.Is(err, disk.ErrGone) {
		return "", o, nil
	}
	if err != nil {
		return "", o, err
	}
	if m, is := r.(interface{ Whole() []byte }); is {
		o = Object{Kind: o.Kind, Content: m.Whole()}
	} else if size > readAhead {
		at, there := d.large[size]
		if !there {
			d.large[size] = len(d.Objects)
			return "", o, r.Close()
		}
		if at >= 0 {
			d.large[size] = -1
			first, err := idOf(d.Objects[at])
			if err != nil {
				return "", o, errors.Join(err, r.Close())
			}
			d.first[first] = at
		}
	}
	id, err := hashAs(o.Kind, r, size)
	return id, o, err
}

// idOf returns the id of an object as it is now, or "" if it is gone.
func idOf(o Object) (string, error) {
	r, size, err := o.Open()
	if errors.Is(err, disk.ErrGone) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return hashAs(o.Kind, r, size)
}

// hashAs hashes what r reads, which it closes; "" is the id of what has become shorter.
func hashAs(kind string, r io.ReadCloser, size int64) (string, error) {
	h := NewHash(kind, size)
	n, err := io.Copy(h, io.LimitReader(r, size))
	if err = errors.Join(err, r.Close()); err != nil || n < size {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Given is which of the objects given one of Objects is.
func (d *Distinct) Given(at int) int { return d.of[at] }

// All returns the id of each object given, from those with which the distinct ones were written, and
// those that were left out for another one that then was not what was written in its place.
func (d *Distinct) All(ids []string) (all []string, moved []int) {
	all = make([]string, len(d.at))
	for i, at := range d.at {
		if all[i] = ids[at]; d.same[i] != "" && d.same[i] != all[i] {
			moved = append(moved, i)
		}
	}
	return all, moved
}

// WritePack writes objects as one pack and returns their ids, in order. One whose source vanished or
// has become shorter has the id "". It is a *Twice, before the pack is whole, if some are the same.
func WritePack(ctx context.Context, dst io.Writer, objects []Object) ([]string, error) {
	sum := sha1.New()
	buf := bufio.NewWriterSize(io.MultiWriter(dst, sum), 64<<10)
	var head [12]byte
	copy(head[:], "PACK")
	binary.BigEndian.PutUint32(head[4:], 2)
	binary.BigEndian.PutUint32(head[8:], uint32(len(objects)))
	buf.Write(head[:])
	z := Deflaters.Get().(*zlib.Writer)
	defer Deflaters.Put(z)
	ids := make([]string, len(objects))
	seen := make(map[string]bool, len(objects))
	var twice []int
	for i, o := range objects {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// The pack's header gives the number of objects, and each object its size, so for a
		// file that vanished or is being written to, an object that nobody names is written
		// in its place, of bytes that no other has.
		r, size, err := o.Open()
		gone := errors.Is(err, disk.ErrGone)
		if gone {
			nobodys := make([]byte, 20)
			rand.Read(nobodys)
			r, size = io.NopCloser(bytes.NewReader(nobodys)), int64(len(nobodys))
		} else if err != nil {
			return nil, err
		}
		writePackHeader(buf, packKinds[o.Kind], size)
		z.Reset(buf)
		h := NewHash(o.Kind, size)
		w := io.MultiWriter(h, z)
		n, err := io.Copy(w, io.LimitReader(r, size))
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		if n < size {
			gone = true
			if _, err := io.CopyN(w, zeroes{}, size-n); err != nil {
				return nil, err
			}
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		id := hex.EncodeToString(h.Sum(nil))
		if seen[id] {
			twice = append(twice, i)
		}
		seen[id] = true
		if !gone {
			ids[i] = id
		}
	}
	if err := buf.Flush(); err != nil {
		return nil, err
	}
	if len(twice) > 0 {
		return nil, &Twice{twice}
	}
	_, err := dst.Write(sum.Sum(nil))
	return ids, err
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func writePackHeader(w *bufio.Writer, kind byte, size int64) {
	c := kind<<4 | byte(size&0x0f)
	for size >>= 4; size > 0; size >>= 7 {
		w.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	w.WriteByte(c)
}
