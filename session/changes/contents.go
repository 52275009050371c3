// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

const contentDir = "content"

// contents are the files of one set that is being made, by the SHA-256 of what is in
// them.
type contents struct {
	dir   string // of the set
	room  *reservation
	limit int64 // bytes that the owner's sets may have
	sizes map[string]int64
	sum   hash.Hash
	copy  []byte
}

func newContents(dir string, room *reservation, limit int64) (*contents, error) {
	if err := os.Mkdir(filepath.Join(dir, contentDir), 0o700); err != nil {
		return nil, storeError("keep what was changed", err)
	}
	return &contents{dir: dir, room: room, limit: limit, sizes: map[string]int64{}, sum: sha256.New(), copy: make([]byte, 64<<10)}, nil
}

// add keeps a content, once. What it is, and whether it fits, shows at its end.
func (c *contents) add(r io.Reader) (sha string, size int64, err error) {
	temp := filepath.Join(c.dir, contentDir, "new")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", 0, storeError("keep what was changed", err)
	}
	defer f.Close()
	c.sum.Reset()
	size, err = io.CopyBuffer(io.MultiWriter(c.room, c.sum, writeOnly{f}), readOnly{r}, c.copy)
	if err != nil {
		return "", 0, c.failed(err)
	}
	sha = hex.EncodeToString(c.sum.Sum(nil))
	if _, ok := c.sizes[sha]; ok {
		c.room.left += size
		return sha, size, nil
	}
	if err := os.Rename(temp, filepath.Join(c.dir, contentDir, sha)); err != nil {
		return "", 0, storeError("keep what was changed", err)
	}
	c.sizes[sha] = size
	return sha, size, nil
}

// readOnly and writeOnly hide the ways past a buffer, which a tar reader has for files
// with holes: they are seeked over.
type (
	readOnly  struct{ io.Reader }
	writeOnly struct{ io.Writer }
)

// failed tells a layer that cannot be read from a disk that cannot be written.
func (c *contents) failed(err error) error {
	if errors.Is(err, sandbox.ErrExhausted) {
		return err
	}
	if pe := (*os.PathError)(nil); errors.As(err, &pe) && strings.HasPrefix(pe.Path, c.dir) {
		return storeError("keep what was changed", err)
	}
	return &sandbox.Error{Op: "read what was changed", Kind: sandbox.ErrInvalid, Problem: "the layer cannot be read", Hint: "nothing of it is kept", Cause: err}
}

// keepOnly removes what no entry has, and gives the size of the rest.
func (c *contents) keepOnly(entries []Entry) (int64, error) {
	used := map[string]bool{}
	var bytes, applied int64 // one content may have many names, and each takes room on the host
	for i := range entries {
		if entries[i].hasContent() {
			applied += entries[i].Size
		}
		if applied > c.limit {
			return 0, c.room.store.full(c.room.held.Owner, c.limit)
		}
		if sha := entries[i].SHA256; entries[i].hasContent() && !used[sha] {
			used[sha] = true
			bytes += entries[i].Size
		}
	}
	for sha := range c.sizes {
		if !used[sha] {
			if err := os.Remove(filepath.Join(c.dir, contentDir, sha)); err != nil {
				return 0, storeError("keep what was changed", err)
			}
		}
	}
	_ = os.Remove(filepath.Join(c.dir, contentDir, "new"))
	return bytes, nil
}

// hasContent says that the set has a content for the entry.
func (e *Entry) hasContent() bool { return e.Type == File && (e.Op == Add || e.Op == Change) }
