package vault

import (
	"context"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/crypto/chacha20poly1305"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
	"choir.dev/choiros/internal/newfile"
)

const (
	// MaxValue bounds one secret, in bytes.
	MaxValue = 64 << 10
	// MaxSecrets bounds how many there are.
	MaxSecrets = 500

	secretsFile = "secrets.sealed"
	// magic is the beginning of the file and authenticated with it, so that a
	// file of another version is not taken for this one.
	magic   = "choir-vault-1\n"
	maxFile = 96 << 20
)

var namePattern = lazy.Regexp(`^[A-Za-z][A-Za-z0-9_.-]{0,127}$`)

// ValidName checks a secret's name: a letter, then letters, digits, _ . and -,
// 128 at most.
func ValidName(name string) error {
	if !namePattern().MatchString(name) {
		return fault.New("vault", fault.Invalid, "Use a letter, then letters, digits, _ . or -, at most 128.", errors.New("the secret's name is malformed"))
	}
	return nil
}

// Vault is an open vault. It is safe for concurrent use by one process; the
// data directory's lock keeps others out.
type Vault struct {
	dir  string
	aead cipher.AEAD

	mu     sync.RWMutex
	sealed []byte // the file's content; values are in the clear only while they are used
}

// Open opens the vault in dir; if there is none it makes dir, a master key and an empty
// vault. The key comes from outside if the environment gives one (see KeyFromSystem), and
// otherwise from dir. Errors are Denied when others could read or change the files, and
// Invalid when key and file do not fit. on says whether what it makes is on disk when it
// returns.
func Open(dir string, on newfile.Durability) (*Vault, error) {
	key, err := KeyFromSystem(os.Getenv)
	if err != nil {
		return nil, fault.Wrap("vault.Open", err)
	}
	return OpenWithKey(dir, on, key)
}

// OpenWithKey is Open with a given master key; a zero key means the one in dir.
func OpenWithKey(dir string, on newfile.Durability, key Key) (*Vault, error) {
	const op = "vault.Open"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.New(op, fault.Internal, "Check the data directory.", err)
	}
	if err := private(dir, true); err != nil {
		return nil, fault.Wrap(op, err)
	}
	path := filepath.Join(dir, secretsFile)
	sealed, err := readPrivate(path, maxFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fault.Wrap(op, err)
	}
	if err == nil {
		return unlock(dir, sealed, key)
	}
	var fresh []newfile.Content
	if key.zero() {
		key, err = keyIn(dir)
		if errors.Is(err, os.ErrNotExist) {
			var text []byte
			key, text, err = newKey()
			fresh = append(fresh, newfile.Content{Name: keyFile, Bytes: text})
		}
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
	}
	v := &Vault{dir: dir}
	if v.aead, err = cipherOf(key); err == nil {
		v.sealed, err = v.seal(map[string]string{})
	}
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	return v, newfile.Files(dir, on, append(fresh, newfile.Content{Name: secretsFile, Bytes: v.sealed})...)
}

// unlock opens the secrets that are there. A zero key means the one in dir.
func unlock(dir string, sealed []byte, key Key) (*Vault, error) {
	const op = "vault.Open"
	given := !key.zero()
	if !given {
		var err error
		if key, err = keyIn(dir); errors.Is(err, os.ErrNotExist) {
			// A new key would make the secrets that are there unreadable for good.
			err = fault.New(op, fault.Missing, "Restore "+keyFile+" from a backup, or give the key in "+EnvKey+".", errors.New("there are secrets, but their master key is gone"))
		}
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
	}
	v := &Vault{dir: dir, sealed: sealed}
	var err error
	if v.aead, err = cipherOf(key); err != nil {
		return nil, fault.Wrap(op, err)
	}
	if _, err := v.open(); err != nil {
		return nil, fault.New(op, fault.Invalid, unreadable(given), err)
	}
	return v, nil
}

// Check is the error with which Open would refuse the secrets that are in dir, nil if it
// would open them or there are none. It writes nothing.
func Check(dir string) error {
	key, err := KeyFromSystem(os.Getenv)
	if err != nil {
		return fault.Wrap("vault.Check", err)
	}
	sealed, err := readPrivate(filepath.Join(dir, secretsFile), maxFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = unlock(dir, sealed, key)
	}
	return fault.Wrap("vault.Check", err)
}

// unreadable says what to do about secrets that a master key does not open.
func unreadable(given bool) string {
	if given {
		return "Give the master key that the secrets were sealed with in " + EnvKey + ", or restore keys/ from a backup; without either, move keys/" + secretsFile + " away and set the secrets again."
	}
	return "Use the master key the vault was made with, or restore keys/ from a backup."
}

func cipherOf(key Key) (cipher.AEAD, error) {
	sub, err := hkdf.Key(sha256.New, key.b[:], nil, "choir vault secrets v1", chacha20poly1305.KeySize)
	if err != nil {
		return nil, err
	}
	return chacha20poly1305.NewX(sub)
}

// Damaged names the file of a vault that is damaged, "" if none is. It writes nothing. That
// a file is missing, or that others may read it, is for Open to refuse. So is a key from
// outside that does not open the secrets: it may be another one's, and a recovery would give
// up secrets that are whole.
func Damaged(dir string) string {
	sealed, err := readPrivate(filepath.Join(dir, secretsFile), maxFile)
	if err != nil {
		return ""
	}
	key, err := KeyFromSystem(os.Getenv)
	if err != nil || !key.zero() {
		return ""
	}
	b, err := readPrivate(filepath.Join(dir, keyFile), 4096)
	if err != nil {
		return ""
	}
	if key, err = ParseKey(string(b)); err != nil {
		return keyFile
	}
	v := &Vault{dir: dir, sealed: sealed}
	if v.aead, err = cipherOf(key); err == nil {
		_, err = v.open()
	}
	if err != nil {
		return secretsFile
	}
	return ""
}

// Set stores a secret, replacing one of the same name. It is on disk when Set
// returns.
func (v *Vault) Set(_ context.Context, name, value string) error {
	const op = "vault.Set"
	if err := ValidName(name); err != nil {
		return err
	}
	if value == "" || len(value) > MaxValue || !utf8.ValidString(value) {
		return fault.New(op, fault.Invalid, "", fmt.Errorf("the value of %s must be text of 1 to %d bytes", name, MaxValue))
	}
	return v.change(op, func(all map[string]string) error {
		if _, ok := all[name]; !ok && len(all) >= MaxSecrets {
			return fault.New(op, fault.Exhausted, "Remove secrets that are not used.", fmt.Errorf("there are %d secrets already", len(all)))
		}
		all[name] = value
		return nil
	})
}

// Get returns a secret; the error is NotFound if there is none.
func (v *Vault) Get(_ context.Context, name string) (string, error) {
	if err := ValidName(name); err != nil {
		return "", err
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	all, err := v.open()
	if err != nil {
		return "", fault.Wrap("vault.Get", err)
	}
	value, ok := all[name]
	if !ok {
		return "", fault.New("vault.Get", fault.NotFound, "Set it with `choir secrets set "+name+"`.", fmt.Errorf("there is no secret %s", name))
	}
	return value, nil
}

// Lookup is Get for callers to whom a missing secret is no error: it then returns "".
func (v *Vault) Lookup(ctx context.Context, name string) (string, error) {
	value, err := v.Get(ctx, name)
	if fault.Is(err, fault.NotFound) {
		return "", nil
	}
	return value, err
}

// List returns the names, sorted; never a value.
func (v *Vault) List(context.Context) ([]string, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all, err := v.open()
	if err != nil {
		return nil, fault.Wrap("vault.List", err)
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// Values returns every secret, for those who redact them from text. Nothing else needs more
// than one.
func (v *Vault) Values(context.Context) ([]string, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all, err := v.open()
	if err != nil {
		return nil, fault.Wrap("vault.Values", err)
	}
	out := make([]string, 0, len(all))
	for _, value := range all {
		out = append(out, value)
	}
	return out, nil
}

// Remove forgets a secret; the error is NotFound if there is none.
func (v *Vault) Remove(_ context.Context, name string) error {
	const op = "vault.Remove"
	if err := ValidName(name); err != nil {
		return err
	}
	return v.change(op, func(all map[string]string) error {
		if _, ok := all[name]; !ok {
			return fault.New(op, fault.NotFound, "", fmt.Errorf("there is no secret %s", name))
		}
		delete(all, name)
		return nil
	})
}

func (v *Vault) change(op string, f func(map[string]string) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, err := v.open()
	if err != nil {
		return fault.Wrap(op, err)
	}
	if err := f(all); err != nil {
		return err
	}
	return fault.Wrap(op, v.store(all))
}

// open decrypts the secrets; the caller holds the lock.
func (v *Vault) open() (map[string]string, error) {
	b := v.sealed
	if len(b) < len(magic)+v.aead.NonceSize() || string(b[:len(magic)]) != magic {
		return nil, errors.New("the vault's file is not of this version, or damaged")
	}
	nonce := b[len(magic) : len(magic)+v.aead.NonceSize()]
	plain, err := v.aead.Open(nil, nonce, b[len(magic)+len(nonce):], []byte(magic))
	if err != nil {
		return nil, errors.New("the vault's file can't be opened with this master key, or is damaged")
	}
	all := map[string]string{}
	if err := json.Unmarshal(plain, &all); err != nil {
		return nil, errors.New("the vault's content is damaged")
	}
	return all, nil
}

// store encrypts under a new nonce and replaces the file; the caller holds the
// lock. What is in memory changes only when the file has.
func (v *Vault) store(all map[string]string) error {
	out, err := v.seal(all)
	if err != nil {
		return err
	}
	if err := replace(v.dir, secretsFile, out); err != nil {
		return err
	}
	v.sealed = out
	return nil
}

// seal encrypts what the vault holds.
func (v *Vault) seal(all map[string]string) ([]byte, error) {
	plain, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(magic)+v.aead.NonceSize(), len(magic)+v.aead.NonceSize()+len(plain)+v.aead.Overhead())
	copy(out, magic)
	nonce := out[len(magic):]
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return v.aead.Seal(out, nonce, plain, []byte(magic)), nil
}
