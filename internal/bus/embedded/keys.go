package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/newfile"
)

// keys are the identities that outlive a process. The key that signs users' credentials is
// not among them: it is made at each start, so that no credentials survive a restart.
type keys struct{ operator, system, account nkeys.KeyPair }

// DamagedKeys returns the key files in a directory, except the account's, that exist and
// contain no key of their kind.
func DamagedKeys(dir string) ([]string, error) {
	var out []string
	for file, kind := range map[string]nkeys.PrefixByte{"operator.nk": nkeys.PrefixByteOperator, "system.nk": nkeys.PrefixByteAccount} {
		_, err := readKey(filepath.Join(dir, file), kind)
		switch {
		case fault.Is(err, fault.Damaged):
			out = append(out, file)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return out, nil
}

// Account returns the account whose key is in a directory, or the error of reading the key.
func Account(keysDir string) (string, error) {
	pair, err := readKey(filepath.Join(keysDir, "account.nk"), nkeys.PrefixByteAccount)
	if err != nil {
		return "", fault.Wrap("bus.Account", err)
	}
	return pair.PublicKey()
}

func loadKeys(dir string, on newfile.Durability) (keys, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return keys{}, fault.Wrap("keys", err)
	}
	var k keys
	var missing []newfile.Content
	for _, want := range []struct {
		file string
		make func() (nkeys.KeyPair, error)
		kind nkeys.PrefixByte
		into *nkeys.KeyPair
	}{
		{"operator.nk", nkeys.CreateOperator, nkeys.PrefixByteOperator, &k.operator},
		{"system.nk", nkeys.CreateAccount, nkeys.PrefixByteAccount, &k.system},
		{"account.nk", nkeys.CreateAccount, nkeys.PrefixByteAccount, &k.account},
	} {
		pair, err := loadKey(filepath.Join(dir, want.file), want.kind)
		if errors.Is(err, fs.ErrNotExist) {
			var seed []byte
			pair, seed, err = newKey(want.make)
			missing = append(missing, newfile.Content{Name: want.file, Bytes: seed})
		}
		if err != nil {
			return keys{}, fault.Wrap("keys", err)
		}
		*want.into = pair
	}
	if len(missing) > 0 {
		if err := newfile.Files(dir, on, missing...); err != nil {
			return keys{}, fault.Wrap("write keys", err)
		}
	}
	return k, nil
}

// loadKey reads an existing key and restricts access to its file.
func loadKey(path string, kind nkeys.PrefixByte) (nkeys.KeyPair, error) {
	pair, err := readKey(path, kind)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fault.Wrap("protect key", err)
	}
	return pair, nil
}

// readKey reads a key without writing anything.
func readKey(path string, kind nkeys.PrefixByte) (nkeys.KeyPair, error) {
	seed, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Wrap("read key", err)
	}
	hint := "Restore " + path + " from a backup, or run choir recover: it gives the stored log a new identity."
	pair, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		return nil, fault.New("read key", fault.Damaged, hint, fmt.Errorf("%s: %w", path, err))
	}
	if public, err := pair.PublicKey(); err != nil || nkeys.Prefix(public) != kind {
		return nil, fault.New("read key", fault.Damaged, hint, errors.Join(fmt.Errorf("%s holds another kind of key", path), err))
	}
	return pair, nil
}

// newKey makes a key, and returns the content of its file.
func newKey(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, []byte, error) {
	pair, err := create()
	if err != nil {
		return nil, nil, fmt.Errorf("create key: %w", err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, nil, fmt.Errorf("read seed: %w", err)
	}
	return pair, append(seed, '\n'), nil
}

// accounts makes the operator's claims and a resolver that holds both accounts.
func (s *Server) accounts(k keys) (*jwt.OperatorClaims, *server.MemAccResolver, error) {
	var ids [3]string
	for i, pair := range []nkeys.KeyPair{k.operator, k.system, k.account} {
		id, err := pair.PublicKey()
		if err != nil {
			return nil, nil, fmt.Errorf("read key: %w", err)
		}
		ids[i] = id
	}
	s.account = ids[2]
	signer, err := s.signer.PublicKey()
	if err != nil {
		return nil, nil, fmt.Errorf("read signing key: %w", err)
	}
	oc := jwt.NewOperatorClaims(ids[0])
	oc.Name = "choir"
	oc.SystemAccount = ids[1]
	encoded, err := oc.Encode(k.operator)
	if err != nil {
		return nil, nil, fmt.Errorf("sign operator: %w", err)
	}
	if oc, err = jwt.DecodeOperatorClaims(encoded); err != nil {
		return nil, nil, fmt.Errorf("read operator: %w", err)
	}
	sys := jwt.NewAccountClaims(ids[1])
	sys.Name = "SYSTEM"
	s.claims = jwt.NewAccountClaims(ids[2])
	s.claims.Name = "CHOIR"
	s.claims.SigningKeys.Add(signer)
	s.claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
	}
	resolver := &server.MemAccResolver{}
	for _, ac := range []*jwt.AccountClaims{sys, s.claims} {
		token, err := ac.Encode(k.operator)
		if err != nil {
			return nil, nil, fmt.Errorf("sign account %s: %w", ac.Name, err)
		}
		if err := resolver.Store(ac.Subject, token); err != nil {
			return nil, nil, fmt.Errorf("store account %s: %w", ac.Name, err)
		}
	}
	return oc, resolver, nil
}
