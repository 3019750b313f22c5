package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// clientHello is what Go's TLS client sends first, as a handshake message.
func clientHello(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		_ = tls.Client(b, cfg).Handshake() // an error: nobody answers
		b.Close()
	}()
	var head [5]byte
	if _, err := io.ReadFull(a, head[:]); err != nil {
		t.Fatal(err)
	}
	msg := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(a, msg); err != nil {
		t.Fatal(err)
	}
	return msg
}

// records wraps a handshake message in records of at most n bytes.
func records(msg []byte, n int) []byte {
	var out []byte
	for len(msg) > 0 {
		k := min(n, len(msg))
		out = append(out, 22, 3, 1, byte(k>>8), byte(k))
		out, msg = append(out, msg[:k]...), msg[k:]
	}
	return out
}

// hello builds a ClientHello with the given extensions.
func hello(ext ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 0x01, 1, 0)
	all := bytes.Join(ext, nil)
	body = append(body, byte(len(all)>>8), byte(len(all)))
	body = append(body, all...)
	return append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

func extension(kind int, data []byte) []byte {
	return append([]byte{byte(kind >> 8), byte(kind), byte(len(data) >> 8), byte(len(data))}, data...)
}

func sni(name string) []byte {
	n := len(name)
	return extension(0, append([]byte{byte((n + 3) >> 8), byte(n + 3), 0, byte(n >> 8), byte(n)}, name...))
}

func TestReadHello(t *testing.T) {
	real := clientHello(t, &tls.Config{ServerName: "allowed.example"})
	nameless := clientHello(t, &tls.Config{InsecureSkipVerify: true})
	far := hello(extension(21, make([]byte, 9000)), sni("allowed.example"))
	for _, c := range []struct {
		name string
		in   []byte
		want string
		err  error
	}{
		{"one record", records(real, 1<<14), "allowed.example", nil},
		{"a record for each byte", records(real, 1), "allowed.example", nil},
		{"split in the name", records(real, 100), "allowed.example", nil},
		{"no name", records(nameless, 1<<14), "", nil},
		{"name beyond the first kilobytes", records(far, 1<<14), "allowed.example", nil},
		{"name beyond the first kilobytes, split", records(far, 700), "allowed.example", nil},
		{"two names", records(hello(sni("allowed.example"), sni("evil.example")), 1<<14), "", errNotTLS},
		{"two names in one list", records(hello(extension(0, append([]byte{0, 12, 0, 0, 3}, "abc\x00\x00\x03def"...))), 1<<14), "", errNotTLS},
		{"empty name", records(hello(sni("")), 1<<14), "", errNotTLS},
		{"hidden name", records(hello(sni("allowed.example"), extension(0xfe0d, []byte{0})), 1<<14), "", errECH},
		{"plain HTTP", []byte("GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n"), "", errNotTLS},
		{"ssh", []byte("SSH-2.0-OpenSSH\r\n"), "", errNotTLS},
		{"empty record", append([]byte{22, 3, 1, 0, 0}, records(real, 1<<14)...), "", errNotTLS},
		{"alert first", append([]byte{21, 3, 1, 0, 2, 1, 0}, records(real, 1<<14)...), "", errNotTLS},
		{"something after it in the record", records(append(bytes.Clone(real), 1, 0, 0, 0), 1<<14), "", errNotTLS},
		{"too long", records(append([]byte{1, 0xff, 0xff, 0xff}, make([]byte, 70<<10)...), 1<<14), "", errLong},
		{"record too long", append([]byte{22, 3, 1, 0x41, 0}, real...), "", errNotTLS},
		{"cut", records(real, 1<<14)[:80], "", errNotTLS},
		{"nothing", nil, "", errNotTLS},
	} {
		rest := strings.NewReader(string(c.in) + "rest")
		raw, name, err := readHello(rest)
		if name != c.want || !errors.Is(err, c.err) || (c.err == nil) != (err == nil) {
			t.Errorf("%s: %q, %v", c.name, name, err)
		}
		if err == nil && (!bytes.Equal(raw, c.in) || rest.Len() != 4) {
			t.Errorf("%s: what was read is not what was sent", c.name)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, c := range []struct {
		target, name string
		ok           bool
	}{
		{"allowed.example:443", "allowed.example", true},
		{"allowed.example:443", "ALLOWED.Example", true},
		{"allowed.example:443", "evil.example", false},
		{"allowed.example:443", "", false},
		{"allowed.example:443", "allowed.example\x00.evil", false},
		{"allowed.example:443", "x.allowed.example", false},
		{"allowed.example:443", "127.0.0.1", false},
		{"127.0.0.1:443", "", true},
		{"127.0.0.1:443", "evil.example", false},
	} {
		target, err := ParseTarget(c.target)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkName(target, c.name); (err == nil) != c.ok {
			t.Errorf("%s with %q: %v", c.target, c.name, err)
		}
	}
}

func FuzzReadHello(f *testing.F) {
	f.Add(records(clientHello(f, &tls.Config{ServerName: "allowed.example"}), 1<<14))
	f.Add(records(hello(extension(21, make([]byte, 100)), sni("a.example")), 7))
	f.Add([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		raw, name, err := readHello(r)
		if !bytes.HasPrefix(b, raw) && err == nil {
			t.Fatal("what was read is not what was sent")
		}
		if err == nil && name != "" {
			// Go's own TLS server must find the same name.
			got := ""
			srv := tls.Server(replay{r: bytes.NewReader(b)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				got = h.ServerName
				return nil, errors.New("seen")
			}})
			if herr := srv.Handshake(); got != "" && got != strings.TrimSuffix(name, ".") && got != name {
				t.Fatalf("we read %q, crypto/tls reads %q (%v)", name, got, herr)
			}
		}
	})
}

// replay is a connection from which only the given bytes can be read.
type replay struct {
	net.Conn
	r io.Reader
}

func (c replay) Read(p []byte) (int, error)  { return c.r.Read(p) }
func (c replay) Write(p []byte) (int, error) { return len(p), nil }
func (c replay) Close() error                { return nil }
