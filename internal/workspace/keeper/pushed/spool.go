package pushed

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Kinds of git's objects that a push may bring.
const (
	commitKind = "commit"
	treeKind   = "tree"
	blobKind   = "blob"
)

// Limits of what one push brings.
const (
	mostObjects = 250_000
	mostCommit  = 1 << 20  // bytes of a commit
	mostTree    = 32 << 20 // bytes of a tree
)

// spool holds the objects of a push in a file until all of them were checked.
type spool struct {
	file  *os.File
	at    map[string]spooled // by id
	order []string
}

// spooled says where in the file an object is.
type spooled struct {
	kind         string
	offset, size int64
}

var errList = fault.New("", fault.Invalid, "", errors.New("this is no list of objects"))

// fill reads a list of objects, each as a line of id, kind and size, then the content and a
// newline, as git's cat-file writes it. They may have most bytes together, and each file
// mostFile.
func (s *spool) fill(from io.Reader, most, mostFile int64) error {
	in, out := bufio.NewReaderSize(from, 64<<10), bufio.NewWriterSize(s.file, 64<<10)
	s.at = map[string]spooled{}
	for total := int64(0); ; {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return out.Flush()
		}
		if errors.Is(err, bufio.ErrBufferFull) || errors.Is(err, io.EOF) {
			return errList
		}
		if err != nil {
			return err
		}
		id, o, err := header(string(line))
		if err != nil {
			return err
		}
		if err := o.fits(mostFile); err != nil {
			return err
		}
		if o.size > most-total || len(s.order) == mostObjects {
			return fault.New("", fault.Exhausted, "Raise storage.add_mb, or push fewer commits at once.",
				fmt.Errorf("the push has more than %d MiB unpacked, or %d objects", most>>20, mostObjects))
		}
		o.offset = total
		total += o.size
		if err := copied(out, in, id, o); err != nil {
			return err
		}
		if _, twice := s.at[id]; !twice {
			s.order = append(s.order, id)
		}
		s.at[id] = o
	}
}

func header(line string) (id string, o spooled, err error) {
	f := strings.Split(strings.TrimSuffix(line, "\n"), " ")
	if len(f) != 3 || len(f[0]) != 40 || !wire.IsHex(f[0]) {
		return "", o, errList
	}
	size, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || size < 0 {
		return "", o, errList
	}
	return f[0], spooled{kind: f[1], size: size}, nil
}

// fits refuses an object that is too large, or of a kind that no checkpoint has.
func (o spooled) fits(mostFile int64) error {
	most := mostFile
	switch o.kind {
	case commitKind:
		most = mostCommit
	case treeKind:
		most = mostTree
	case blobKind:
	default:
		return fault.New("", fault.Denied, "Push commits.", fmt.Errorf("an object is a %.20q", o.kind))
	}
	if o.size > most {
		return fault.New("", fault.Exhausted, "Bring it in with choir files put.", fmt.Errorf("a %s has %d bytes; at most %d are taken by a push", said(o.kind), o.size, most))
	}
	return nil
}

// said returns the name of a kind of object for people.
func said(kind string) string {
	if kind == blobKind {
		return "file"
	}
	return kind
}

// copied copies an object into the file, and compares it with its id.
func copied(out io.Writer, in *bufio.Reader, id string, o spooled) error {
	sum := sha1.New()
	fmt.Fprintf(sum, "%s %d\x00", o.kind, o.size)
	if _, err := io.CopyN(io.MultiWriter(out, sum), in, o.size); err != nil {
		if errors.Is(err, io.EOF) {
			err = errList
		}
		return err
	}
	if end, err := in.ReadByte(); err != nil || end != '\n' {
		return errors.Join(errList, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != id {
		return fault.New("", fault.Invalid, "", fmt.Errorf("%s %s is other than its name", o.kind, id))
	}
	return nil
}

// content reads an object that is small enough for memory.
func (s *spool) content(id string) ([]byte, error) {
	o := s.at[id]
	b := make([]byte, o.size)
	_, err := s.file.ReadAt(b, o.offset)
	if errors.Is(err, io.EOF) && o.size == 0 {
		err = nil
	}
	return b, err
}

// open opens any object.
func (s *spool) open(id string) (io.ReadCloser, int64, error) {
	o := s.at[id]
	return io.NopCloser(io.NewSectionReader(s.file, o.offset, o.size)), o.size, nil
}
