// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/sandbox"
)

// keyPrefix begins audit.key; the rest is the seed in hex.
const keyPrefix = "caisson-audit-key-v1 "

// loadKey reads audit.key, and makes it when create says that there is no
// record yet. A key that is missing or unreadable beside a record breaks the
// log for writers: a new key would let any writer begin the chain anew unseen.
func (l *Log) loadKey(create bool) error {
	path := l.path(keyFile)
	if create && !exists(path) {
		if err := makeKey(path, l.rand); err != nil {
			return unavailable("make "+path, err)
		}
	}
	seed, err := readKey(path)
	if err != nil {
		l.broken = &sandbox.Error{Op: "read " + path, Kind: sandbox.ErrUnavailable, Problem: "the key that signs the audit record cannot be used", Cause: err,
			Hint: "put the key back with mode 0600; " + anew}
		return nil
	}
	// The public key is computed and never read: two public keys for one seed would
	// give two signatures from which the private key can be reckoned.
	l.key = ed25519.NewKeyFromSeed(seed)
	l.pub = l.key.Public().(ed25519.PublicKey)
	return nil
}

func readKey(path string) ([]byte, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("it is not a file")
	}
	if runtime.GOOS != "windows" && fi.Mode().Perm()&0o077 != 0 {
		return nil, errors.New("other users may read it")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	seed, err := hex.DecodeString(strings.TrimSuffix(strings.TrimPrefix(string(text), keyPrefix), "\n"))
	if err != nil || len(seed) != ed25519.SeedSize || !strings.HasPrefix(string(text), keyPrefix) {
		return nil, errors.New("it does not hold a key")
	}
	return seed, nil
}

// makeKey writes a new key. Of two processes that make one at once, one wins
// and both use its key.
func makeKey(path string, random io.Reader) error {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return err
	}
	return publish(path, []byte(keyPrefix+hex.EncodeToString(seed)+"\n"))
}

// publish makes a file with its whole content at once, durably, unless there
// is one already.
func publish(path string, content []byte) error {
	if err := files.Make(path, content); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable, where the system can.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
