package tether

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

const (
	magic     = "CHOIRT01"
	nonceSize = 32
	macSize   = sha256.Size
	tokenSize = 32
)

// Token is a secret that opens one session. It is used up by the first handshake that tries
// it, whether that succeeds or not, so neither a replay nor a guess gets a second chance.
type Token struct {
	mu     sync.Mutex
	secret []byte
}

// NewToken draws a token.
func NewToken() *Token {
	secret := make([]byte, tokenSize)
	_, _ = rand.Read(secret) // never fails since Go 1.24
	return &Token{secret: secret}
}

// ParseToken reads a token as Encode wrote it: 64 hex digits.
func ParseToken(s string) (*Token, error) {
	secret, err := hex.DecodeString(s)
	if err != nil || len(secret) != tokenSize {
		return nil, fault.New("tether.ParseToken", fault.Invalid, "", errors.New("a token is 64 hex digits"))
	}
	return &Token{secret: secret}, nil
}

// Encode returns the token for the end that dials. It is empty once the token is used up.
func (t *Token) Encode() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return hex.EncodeToString(t.secret)
}

// spend returns the secret the first time it is called.
func (t *Token) spend() ([]byte, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	secret := t.secret
	if defence.Off(defence.TetherToken) {
		return bytes.Clone(secret), len(secret) == tokenSize
	}
	t.secret = nil
	return secret, len(secret) == tokenSize
}

var errHandshake = errors.New("the other end did not prove that it knows the token")

// accept runs the host's half of the handshake. The host writes first, so that a guest that
// was given the wrong connection reveals nothing:
//
//	host → guest   magic, nonceH
//	guest → host   magic, nonceG, MAC(guest)
//	host → guest   MAC(host)
func accept(conn net.Conn, secret []byte) ([]byte, error) {
	var nonceH, nonceG [nonceSize]byte
	_, _ = rand.Read(nonceH[:])
	if _, err := conn.Write(append([]byte(magic), nonceH[:]...)); err != nil {
		return nil, err
	}
	var hello [len(magic) + nonceSize + macSize]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return nil, err
	}
	copy(nonceG[:], hello[len(magic):])
	want := proof(secret, "guest", nonceH, nonceG)
	if string(hello[:len(magic)]) != magic || !hmac.Equal(hello[len(magic)+nonceSize:], want) && !defence.Off(defence.TetherProof) {
		return nil, errHandshake
	}
	if _, err := conn.Write(proof(secret, "host", nonceH, nonceG)); err != nil {
		return nil, err
	}
	return sessionKey(secret, nonceH, nonceG)
}

func dial(conn net.Conn, secret []byte) ([]byte, error) {
	var nonceH, nonceG [nonceSize]byte
	_, _ = rand.Read(nonceG[:])
	var hello [len(magic) + nonceSize]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return nil, err
	}
	if string(hello[:len(magic)]) != magic {
		return nil, errHandshake
	}
	copy(nonceH[:], hello[len(magic):])
	out := append([]byte(magic), nonceG[:]...)
	if _, err := conn.Write(append(out, proof(secret, "guest", nonceH, nonceG)...)); err != nil {
		return nil, err
	}
	var answer [macSize]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return nil, err
	}
	if !hmac.Equal(answer[:], proof(secret, "host", nonceH, nonceG)) {
		return nil, errHandshake
	}
	return sessionKey(secret, nonceH, nonceG)
}

// proof is a MAC over a role and both nonces, so that an end's own proof can't be sent back
// to it.
func proof(secret []byte, role string, nonceH, nonceG [nonceSize]byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(magic + " " + role + "\x00"))
	mac.Write(nonceH[:])
	mac.Write(nonceG[:])
	return mac.Sum(nil)
}

func sessionKey(secret []byte, nonceH, nonceG [nonceSize]byte) ([]byte, error) {
	return hkdf.Key(sha256.New, secret, append(nonceH[:], nonceG[:]...), magic+" session", 32)
}

// bounded runs one half of the handshake under a deadline and ctx, and clears
// the deadline.
func bounded(ctx context.Context, op string, conn net.Conn, token *Token, limit time.Duration, half func(net.Conn, []byte) ([]byte, error)) ([]byte, error) {
	secret, ok := token.spend()
	if !ok {
		return nil, fault.New(op, fault.Denied, "", errors.New("the token was used already"))
	}
	defer clear(secret)
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, fault.New(op, fault.Internal, "", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	key, err := half(conn, secret)
	stopped := stop()
	switch {
	case ctx.Err() != nil:
		return nil, fault.Wrap(op, ctx.Err())
	case !stopped:
		return nil, fault.Wrap(op, context.Canceled)
	case errors.Is(err, errHandshake):
		return nil, fault.New(op, fault.Denied, "", err)
	case err != nil:
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil, fault.New(op, fault.Timeout, "", fmt.Errorf("no handshake within %v", limit))
		}
		return nil, fault.New(op, fault.Unavailable, "", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, fault.New(op, fault.Internal, "", err)
	}
	return key, nil
}
