// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	roomFile  = "room"   // in a set that is not whole: what it may take
	roomStep  = 16 << 20 // bytes that are reserved at once
	keyShares = 4        // how many keys fill the store
)

// reservation is what a set that is being made may take of the store: others leave that much
// room. It grows with the set, so that sets that are made at once are counted as they grow.
type reservation struct {
	store *Store
	dir   string // of the set
	held  roomHeld
	left  int64 // bytes of it that are not taken yet
}

// roomHeld is what others see of it.
type roomHeld struct {
	Owner string `json:"owner"`
	Bytes int64  `json:"bytes"`
}

// take takes n bytes.
func (r *reservation) take(n int64) error {
	if n > r.left {
		if err := r.store.exclusively(func() error { return r.grow(n - r.left) }); err != nil {
			return err
		}
	}
	r.left -= n
	return nil
}

// grow reserves n more bytes and some more, under the store's lock.
func (r *reservation) grow(n int64) error {
	room, err := r.store.room(r.held.Owner, r.dir)
	if err != nil {
		return storeError("keep what was changed", err)
	}
	if room -= r.held.Bytes; n > room {
		return r.store.full(r.held.Owner, max(room, 0)+r.left)
	}
	n = min(max(n, roomStep), room)
	held := r.held
	held.Bytes += n
	b, err := json.Marshal(held)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, roomFile), b, 0o600)
	}
	if err != nil {
		return storeError("keep what was changed", err)
	}
	r.held, r.left = held, r.left+n
	return nil
}

// Write takes the bytes that are written beside it.
func (r *reservation) Write(p []byte) (int, error) {
	if err := r.take(int64(len(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// limit is how many bytes an owner's sets may have: the operator's all, a key's a share, so
// that no key keeps the others from keeping anything.
func (s *Store) limit(owner string) int64 {
	if owner == "" {
		return s.o.MaxBytes
	}
	return s.o.MaxBytes / keyShares
}

// room says how many bytes sets of an owner may still take, under the store's lock. What is
// reserved for the one that is made in the directory except does not count.
func (s *Store) room(owner, except string) (int64, error) {
	all, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, err
	}
	left, own := s.o.MaxBytes, s.limit(owner)
	for _, e := range all {
		h, err := s.takes(e.Name(), except)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if left -= h.Bytes; h.Owner == owner {
			own -= h.Bytes
		}
	}
	return min(left, own), nil
}

// takes is what a set has, or may take that is not whole yet.
func (s *Store) takes(name, except string) (h roomHeld, err error) {
	switch {
	case validID(name):
		sum, err := s.summary(name)
		if err != nil {
			return h, err
		}
		return roomHeld{sum.Owner, sum.Bytes}, nil
	case strings.HasPrefix(name, makingDir) && s.path(name) != except:
		b, err := os.ReadFile(s.path(name, roomFile))
		if err != nil {
			return h, err
		}
		_ = json.Unmarshal(b, &h) // who was killed while it wrote that takes nothing
		return h, nil
	}
	return h, nil
}

// full says that a set does not fit.
func (s *Store) full(owner string, left int64) error {
	whose := "all change sets together"
	if owner != "" {
		whose = "the change sets of one key"
	}
	return &sandbox.Error{Op: "keep what was changed", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("it does not fit: %s have at most %d bytes, and %d are left", whose, s.limit(owner), max(left, 0)),
		Hint: "drop change sets that are no longer needed, or ignore what is built"}
}
