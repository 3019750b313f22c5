package local

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	certsInEtc = "ssl/certs"
	bundle     = "ca-certificates.crt" // what git, curl, Go and OpenSSL programs on Debian read
)

// addCA fills dir, a box's /etc/ssl/certs, with the machine's certificates and
// those of file.
func addCA(dir, file string) error {
	more, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(more) {
		return fmt.Errorf("%s holds no certificate", file)
	}
	own := "/etc/" + certsInEtc
	entries, err := os.ReadDir(own)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	all := []byte{}
	for _, e := range entries {
		from, to := filepath.Join(own, e.Name()), filepath.Join(dir, e.Name())
		target, err := os.Readlink(from)
		switch {
		case e.IsDir(): // other formats, such as Java's
		case e.Name() == bundle:
			if all, err = os.ReadFile(from); err != nil {
				return err
			}
		case err == nil && (strings.HasPrefix(target, "/usr/") || !strings.Contains(target, "/")):
			if err := os.Symlink(target, to); err != nil { // boxes see /usr
				return err
			}
		default:
			if err := copySmall(from, to); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	if n := len(all); n > 0 && all[n-1] != '\n' {
		all = append(all, '\n')
	}
	return os.WriteFile(filepath.Join(dir, bundle), append(all, more...), 0o644)
}
