package reader

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// reason says in our own words why there is no answer. The library's errors repeat what the service said: a line that is no HTTP, a
// length that is none, a certificate's names.
func reason(err error) string {
	var said refusal
	var name x509.HostnameError
	var issuer x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var number syscall.Errno
	var network net.Error
	var unknown *net.DNSError
	switch {
	case errors.As(err, &said):
		return string(said)
	case errors.As(err, &name):
		return "its certificate is another host's"
	case errors.As(err, &issuer):
		return "its certificate is signed by nobody who is trusted"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	case errors.As(err, &invalid), errors.As(err, &certificate):
		return "its certificate does not hold"
	case errors.As(err, &alert), errors.As(err, &record):
		return "no TLS could be agreed on"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "it did not answer in time"
	case errors.Is(err, context.Canceled):
		return "it was given up"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "the connection ended"
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &unknown):
		return "its name is not known"
	case strings.Contains(err.Error(), "response headers exceeded"):
		return "the head of its answer is too long"
	}
	return "what it answers can't be read as HTTP"
}
