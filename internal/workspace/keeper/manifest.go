package keeper

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// A manifest says of which chunks a large file consists. It is a git blob like
// any other, so that trees, commits and comparisons need not know of chunks; its
// bytes follow from the file's bytes alone. The NUL in its first line makes it
// binary to git, which then shows no lines of it.
//
//	"choir chunks 1\x00\n", size (8 bytes), SHA-256 of the whole (32), count (4),
//	and of each chunk its length (4) and SHA-256 (32); numbers are big-endian
type manifest struct {
	size   int64
	sum    [sha256.Size]byte
	chunks []chunkRef
}

type chunkRef struct {
	sum [sha256.Size]byte
	len uint32
}

// name is the chunk's SHA-256 in hex, by which it is stored.
func (c chunkRef) name() string { return hex.EncodeToString(c.sum[:]) }

const (
	manifestMagic = "choir chunks 1\x00\n"
	manifestHead  = len(manifestMagic) + 8 + sha256.Size + 4
	manifestRef   = 4 + sha256.Size
	// maxChunks bounds a manifest, and with it a file: to 1 TiB at the chunks'
	// average size.
	maxChunks = 512 << 10
	// maxManifest is the size of the largest manifest, in bytes.
	maxManifest = int64(manifestHead + maxChunks*manifestRef)
)

var errManifest = errors.New("not a manifest of chunks")

func (m *manifest) encode() []byte {
	b := make([]byte, 0, manifestHead+len(m.chunks)*manifestRef)
	b = append(b, manifestMagic...)
	b = binary.BigEndian.AppendUint64(b, uint64(m.size))
	b = append(b, m.sum[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.chunks)))
	for _, c := range m.chunks {
		b = binary.BigEndian.AppendUint32(b, c.len)
		b = append(b, c.sum[:]...)
	}
	return b
}

// decodeManifest reads a manifest. It takes exactly what encode makes: whatever
// stands in a tree may have been put there by somebody else.
func decodeManifest(b []byte) (*manifest, error) {
	if int64(len(b)) > maxManifest || len(b) < manifestHead || !bytes.HasPrefix(b, []byte(manifestMagic)) {
		return nil, errManifest
	}
	at := len(manifestMagic)
	size := binary.BigEndian.Uint64(b[at:])
	m := &manifest{}
	copy(m.sum[:], b[at+8:])
	count := int(binary.BigEndian.Uint32(b[at+8+sha256.Size:]))
	if rest := b[manifestHead:]; count > maxChunks || len(rest) != count*manifestRef {
		return nil, fmt.Errorf("%w: it has %d bytes for %d chunks", errManifest, len(b), count)
	}
	if size > uint64(count)*maxChunk {
		return nil, fmt.Errorf("%w: %d bytes in %d chunks", errManifest, size, count)
	}
	m.size = int64(size)
	m.chunks = make([]chunkRef, count)
	var total int64
	for i := range m.chunks {
		p := b[manifestHead+i*manifestRef:]
		m.chunks[i].len = binary.BigEndian.Uint32(p)
		copy(m.chunks[i].sum[:], p[4:])
		if n := m.chunks[i].len; n == 0 || n > maxChunk {
			return nil, fmt.Errorf("%w: a chunk of %d bytes", errManifest, n)
		}
		total += int64(m.chunks[i].len)
	}
	if total != m.size {
		return nil, fmt.Errorf("%w: chunks of %d bytes for a file of %d", errManifest, total, m.size)
	}
	return m, nil
}
