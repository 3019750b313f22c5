// Package objects makes git's objects and packs of them, before they are in a store. What it reads
// may change while it is read.
package objects

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"sync"
)

// ID returns the id that git gives to an object.
func ID(kind string, content []byte) string {
	h := NewHash(kind, int64(len(content)))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

// NewHash hashes an object of so many bytes, of which only the content has to be written to it.
func NewHash(kind string, size int64) hash.Hash {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", kind, size)
	return h
}

// Object is one object to be written: content, or a source read when its turn
// comes (a source must deliver exactly size bytes), perhaps more than once.
type Object struct {
	Kind     string
	Content  []byte
	source   func() (io.ReadCloser, int64, error)
	distinct bool // no other one that is written with it is the same
}

// Named is an object whose content is read when it is written, and which is the same as no other
// that is written with it, for they have names.
func Named(kind string, source func() (io.ReadCloser, int64, error)) Object {
	return Object{Kind: kind, source: source, distinct: true}
}

// From is an object whose content is read when it is written.
func From(kind string, source func() (io.ReadCloser, int64, error)) Object {
	return Object{Kind: kind, source: source}
}

// Open opens its content, and says how long it is.
func (o Object) Open() (io.ReadCloser, int64, error) {
	if o.source != nil {
		return o.source()
	}
	return io.NopCloser(bytes.NewReader(o.Content)), int64(len(o.Content)), nil
}

// Deflaters are *zlib.Writer, which are reused: making one costs more than compressing a small object with it.
var Deflaters = sync.Pool{New: func() any {
	z, err := zlib.NewWriterLevel(nil, zlib.BestSpeed)
	if err != nil {
		panic(err) // a level that zlib doesn't have
	}
	return z
}}
