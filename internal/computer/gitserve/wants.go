package gitserve

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
)

// Git gives a client objects that only a hidden ref reaches, or none any more, if it knows
// their ids: in protocol 2 any, and in the older ones, over HTTP, trees and files. So what a
// client wants is read here, and read.sh refuses what no visible ref reaches.

// Lengths of an object's id, in hexadecimal digits.
const (
	idOfSHA1   = 40
	idOfSHA256 = 64
)

// wanted returns the ids of the objects that a request names after "want", sorted, each once
// and on a line of its own.
func wanted(asked []byte) ([]byte, error) {
	var ids []string
	for r := bytes.NewReader(asked); ; {
		text, err := readPacket(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errLines
		}
		if rest, is := strings.CutPrefix(text, "want "); is {
			id := idOf(rest)
			if id == "" {
				return nil, errLines
			}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var out bytes.Buffer
	for _, id := range slices.Compact(ids) {
		out.WriteString(id + "\n")
	}
	return out.Bytes(), nil
}

// readPacket is readLine for a request with several lists: what ends one is an empty text.
func readPacket(r *bytes.Reader) (string, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	if head == [4]byte{'0', '0', '0', '1'} || head == [4]byte{'0', '0', '0', '2'} {
		return "", nil
	}
	if _, err := r.Seek(-int64(len(head)), io.SeekCurrent); err != nil {
		return "", err
	}
	text, _, err := readLine(r)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return text, err
}

// idOf returns the object's id with which a text begins, in lower case, or "".
func idOf(text string) string {
	text = strings.ToLower(text[:min(len(text), idOfSHA256)])
	if n := strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) }); n >= 0 {
		text = text[:n]
	}
	switch {
	case len(text) == idOfSHA256:
		return text
	case len(text) >= idOfSHA1:
		return text[:idOfSHA1]
	}
	return ""
}
