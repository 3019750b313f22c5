package chunks

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
type Manifest struct {
	Size   int64
	Sum    [sha256.Size]byte
	Chunks []Ref
}

// Ref identifies a chunk by its content.
type Ref struct {
	Sum [sha256.Size]byte
	Len uint32
}

// Name is the chunk's SHA-256 in hex, by which it is stored.
func (c Ref) Name() string { return hex.EncodeToString(c.Sum[:]) }

const (
	manifestMagic = "choir chunks 1\x00\n"
	ManifestHead  = len(manifestMagic) + 8 + sha256.Size + 4
	ManifestRef   = 4 + sha256.Size
	// maxChunks bounds a manifest, and with it a file: to 1 TiB at the chunks'
	// average size.
	maxChunks = 512 << 10
	// MaxManifest is the size of the largest manifest, in bytes.
	MaxManifest = int64(ManifestHead + maxChunks*ManifestRef)
)

var errManifest = errors.New("not a manifest of chunks")

// Encode is what DecodeManifest reads.
func (m *Manifest) Encode() []byte {
	b := make([]byte, 0, ManifestHead+len(m.Chunks)*ManifestRef)
	b = append(b, manifestMagic...)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Size))
	b = append(b, m.Sum[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Chunks)))
	for _, c := range m.Chunks {
		b = binary.BigEndian.AppendUint32(b, c.Len)
		b = append(b, c.Sum[:]...)
	}
	return b
}

// DecodeManifest reads a manifest. It accepts exactly what Encode makes: whatever is in a
// tree may have been put there by somebody else.
func DecodeManifest(b []byte) (*Manifest, error) {
	if int64(len(b)) > MaxManifest || len(b) < ManifestHead || !bytes.HasPrefix(b, []byte(manifestMagic)) {
		return nil, errManifest
	}
	at := len(manifestMagic)
	size := binary.BigEndian.Uint64(b[at:])
	m := &Manifest{}
	copy(m.Sum[:], b[at+8:])
	count := int(binary.BigEndian.Uint32(b[at+8+sha256.Size:]))
	if rest := b[ManifestHead:]; count > maxChunks || len(rest) != count*ManifestRef {
		return nil, fmt.Errorf("%w: it has %d bytes for %d chunks", errManifest, len(b), count)
	}
	if size > uint64(count)*maxChunk {
		return nil, fmt.Errorf("%w: %d bytes in %d chunks", errManifest, size, count)
	}
	m.Size = int64(size)
	m.Chunks = make([]Ref, count)
	var total int64
	for i := range m.Chunks {
		p := b[ManifestHead+i*ManifestRef:]
		m.Chunks[i].Len = binary.BigEndian.Uint32(p)
		copy(m.Chunks[i].Sum[:], p[4:])
		if n := m.Chunks[i].Len; n == 0 || n > maxChunk {
			return nil, fmt.Errorf("%w: a chunk of %d bytes", errManifest, n)
		}
		total += int64(m.Chunks[i].Len)
	}
	if total != m.Size {
		return nil, fmt.Errorf("%w: chunks of %d bytes for a file of %d", errManifest, total, m.Size)
	}
	return m, nil
}
