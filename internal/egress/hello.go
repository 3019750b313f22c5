package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
)

const (
	maxHello  = 64 << 10 // handshake bytes of a ClientHello
	maxRecord = 16 << 10 // plaintext bytes of one TLS record
)

var (
	errNotTLS = errors.New("what the box sent is not a TLS ClientHello")
	errLong   = errors.New("the TLS ClientHello is too long")
	errECH    = errors.New("the TLS ClientHello hides the server's name (encrypted_client_hello)")
)

// readHello reads one ClientHello, which may be spread over several records, and returns the raw
// bytes and the server name in it, "" if there is none.
func readHello(r io.Reader) (raw []byte, name string, err error) {
	var msg []byte
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return raw, "", fmt.Errorf("%w: %w", errNotTLS, err)
		}
		raw = append(raw, head[:]...)
		n := int(binary.BigEndian.Uint16(head[3:]))
		// 22 is a handshake record; an empty one has no use but to stall.
		if head[0] != 22 || head[1] != 3 || n == 0 || n > maxRecord {
			return raw, "", errNotTLS
		}
		if len(msg)+n > maxHello {
			return raw, "", errLong
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return raw, "", fmt.Errorf("%w: %w", errNotTLS, err)
		}
		raw, msg = append(raw, body...), append(msg, body...)
		if msg[0] != 1 { // client_hello
			return raw, "", errNotTLS
		}
		if len(msg) < 4 {
			continue
		}
		want := 4 + int(msg[1])<<16 + int(msg[2])<<8 + int(msg[3])
		switch {
		case want > maxHello:
			return raw, "", errLong
		case len(msg) > want:
			return raw, "", errNotTLS // nothing may follow before the server has answered
		case len(msg) == want:
			name, err := serverName(msg[4:])
			return raw, name, err
		}
	}
}

// cursor reads length-prefixed fields; ok becomes false at the first one that is cut short.
type cursor struct {
	rest []byte
	ok   bool
}

func (c *cursor) bytes(n int) []byte {
	if !c.ok || n > len(c.rest) {
		c.ok = false
		return nil
	}
	out := c.rest[:n]
	c.rest = c.rest[n:]
	return out
}

func (c *cursor) number(width int) int {
	n := 0
	for _, b := range c.bytes(width) {
		n = n<<8 | int(b)
	}
	return n
}

func (c *cursor) vector(width int) []byte { return c.bytes(c.number(width)) }

// serverName returns the server name in a ClientHello's body; more than one is an error.
func serverName(body []byte) (string, error) {
	c := cursor{body, true}
	c.bytes(2 + 32) // version, random
	c.vector(1)     // session
	c.vector(2)     // cipher suites
	c.vector(1)     // compression methods
	if c.ok && len(c.rest) == 0 {
		return "", nil // no extensions at all
	}
	ext := cursor{c.vector(2), c.ok}
	if !c.ok || len(c.rest) != 0 {
		return "", errNotTLS
	}
	name, seen := "", map[int]bool{}
	for ext.ok && len(ext.rest) > 0 {
		kind := ext.number(2)
		data := ext.vector(2)
		if !ext.ok || seen[kind] {
			return "", errNotTLS // an extension is given twice: readers could disagree on which one counts
		}
		seen[kind] = true
		switch kind {
		case 0: // server_name
			list := cursor{data, true}
			entries := cursor{list.vector(2), list.ok}
			isHost := entries.number(1) == 0
			host := entries.vector(2)
			if !entries.ok || len(list.rest) != 0 || len(entries.rest) != 0 || !isHost || len(host) == 0 {
				return "", errNotTLS
			}
			name = string(host)
		case 0xfe0d: // encrypted_client_hello
			if !defence.Off(defence.EgressHello) {
				return "", errECH
			}
		}
	}
	if !ext.ok {
		return "", errNotTLS
	}
	return name, nil
}

// checkName compares the server name with the host that was allowed. For an address there must be
// none, since TLS has no server name for addresses.
func checkName(t Target, name string) error {
	if defence.Off(defence.EgressServerName) {
		return nil
	}
	if t.IP.IsValid() {
		if name != "" {
			return fmt.Errorf("the TLS server name %q was sent to an address", contract.Shorten(name, 80))
		}
		return nil
	}
	if name == "" {
		return errors.New("the TLS ClientHello names no server")
	}
	got, ip, err := canonical(name)
	if err != nil || ip.IsValid() || got != t.Host {
		return fmt.Errorf("the TLS server name %q is not the host that was asked for", contract.Shorten(name, 80))
	}
	return nil
}
