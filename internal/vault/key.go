package vault

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"choir.dev/choiros/internal/fault"
)

const (
	keyFile = "master.key"
	// EnvKey holds a master key in hex or base64.
	EnvKey = "CHOIR_VAULT_KEY"
	// EnvKeyFile names a file that holds one.
	EnvKeyFile = "CHOIR_VAULT_KEY_FILE"
	// Credential is the name of the systemd credential that holds one.
	Credential = "choir-vault-key"
)

// Key is a master key of 256 bits. It never prints itself.
type Key struct{ b [32]byte }

// String implements fmt.Stringer without giving the key away.
func (Key) String() string { return "(master key)" }

// GoString implements fmt.GoStringer without giving the key away.
func (k Key) GoString() string { return k.String() }

func (k Key) zero() bool {
	return subtle.ConstantTimeCompare(k.b[:], make([]byte, len(k.b))) == 1
}

// ParseKey reads a key of 32 bytes in hex or base64.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	var k Key
	for _, decode := range []func(string) ([]byte, error){hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString} {
		if b, err := decode(text); err == nil && len(b) == len(k.b) {
			copy(k.b[:], b)
			if k.zero() {
				break
			}
			return k, nil
		}
	}
	return Key{}, fault.New("vault.ParseKey", fault.Invalid, "Make one with `openssl rand -hex 32`.", errors.New("the master key is not 32 bytes in hex or base64"))
}

// KeyFromSystem returns a master key that the environment gives: EnvKey itself,
// a file named by EnvKeyFile, or the systemd credential. The zero key means
// that it gives none.
func KeyFromSystem(getenv func(string) string) (Key, error) {
	if text := getenv(EnvKey); text != "" {
		return ParseKey(text)
	}
	path, others := getenv(EnvKeyFile), fs.FileMode(0o077)
	if dir := getenv("CREDENTIALS_DIRECTORY"); path == "" && dir != "" {
		path = filepath.Join(dir, Credential)
		others = 0o037 // systemd gives the service's user access by an ACL, which shows as the group's read bit
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return Key{}, nil
		}
	}
	if path == "" {
		return Key{}, nil
	}
	b, err := readMasked(path, 4096, others)
	if err != nil {
		return Key{}, fault.New("vault.KeyFromSystem", fault.CodeOf(err), fault.HintOf(err), fmt.Errorf("master key file: %w", err))
	}
	return ParseKey(string(b))
}

// keyIn reads the master key in dir.
func keyIn(dir string) (Key, error) {
	b, err := readPrivate(filepath.Join(dir, keyFile), 4096)
	if err != nil {
		return Key{}, err
	}
	return ParseKey(string(b))
}

// newKey draws a master key, and returns the content of its file with it.
func newKey() (Key, []byte, error) {
	var k Key
	if _, err := rand.Read(k.b[:]); err != nil {
		return Key{}, nil, err
	}
	return k, []byte(hex.EncodeToString(k.b[:]) + "\n"), nil
}
