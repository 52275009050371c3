// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

// Contents are the entries of a set with what is in their files. While it is open the
// set stays.
type Contents struct {
	Set   *Set
	store *Store
	lock  *os.File
}

// Files opens a set to put it in place elsewhere: in a sandbox that begins with it. The
// ID is a whole one.
func (s *Store) Files(id string) (*Contents, error) {
	lock, err := s.lock(id, lockShared)
	if err != nil {
		return nil, err
	}
	set, err := s.read(id)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &Contents{set, s, lock}, nil
}

// Close ends it.
func (c *Contents) Close() error { return c.lock.Close() }

// Open opens the content of a file that was added or changed. At its end Read says
// whether it is the content that was kept: what was read before may be used only then.
func (c *Contents) Open(e *Entry) (io.ReadCloser, error) { return c.store.content(c.Set.ID, e) }

// content opens a content of a set.
func (s *Store) content(id string, e *Entry) (io.ReadCloser, error) {
	if !e.hasContent() || !validSHA(e.SHA256) {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "read "+Shown(e.Path), "the set has no content of it")
	}
	f, err := os.Open(s.path(id, contentDir, e.SHA256))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged(id, err)
	}
	if err != nil {
		return nil, storeError("read "+Shown(e.Path), err)
	}
	return &checked{f: f, sum: sha256.New(), want: e.SHA256, id: id}, nil
}

// checked reads a content, and says at the end whether it is the one that was kept.
type checked struct {
	f    *os.File
	sum  hash.Hash
	want string
	id   string
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.f.Read(p)
	c.sum.Write(p[:n])
	if errors.Is(err, io.EOF) && hex.EncodeToString(c.sum.Sum(nil)) != c.want {
		return n, damaged(c.id, errors.New("a content has another digest"))
	}
	return n, err
}

func (c *checked) Close() error { return c.f.Close() }

func validSHA(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// hashFile gives the SHA-256 of a file of the host.
func hashFile(h *host, at string) (string, error) {
	f, err := h.open(at)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
