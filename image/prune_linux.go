// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// List lists the images that are here, the newest first.
func (s *Store) List() ([]*Stored, error) {
	names, err := s.allNames()
	if err != nil {
		return nil, err
	}
	keys, err := s.keys(s.images().prefix)
	if err != nil {
		return nil, err
	}
	var out []*Stored
	for _, key := range keys {
		info, err := s.info("sha256:" + key)
		if err != nil {
			continue // it was removed meanwhile, or is damaged: prune takes it
		}
		for _, n := range names[info.Digest] {
			if r, err := reference.Parse(n.Ref); err == nil {
				info.Names = append(info.Names, r.Familiar())
			}
		}
		slices.Sort(info.Names)
		info.InUse = s.inUse(key)
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b *Stored) int {
		if c := b.Made.Compare(a.Made); c != 0 {
			return c
		}
		return strings.Compare(a.Digest, b.Digest)
	})
	return out, nil
}

// keys are the finished entries with a prefix.
func (s *Store) keys(prefix string) ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, cacheError("list images", err)
	}
	var out []string
	for _, e := range entries {
		if key, ok := strings.CutPrefix(e.Name(), prefix); ok {
			out = append(out, key)
		}
	}
	return out, nil
}

// inUse says whether a sandbox holds the image.
func (s *Store) inUse(key string) bool {
	f, err := os.Open(filepath.Join(s.dir, s.images().prefix+key))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Find finds an image that is here by a reference, a digest, or the beginning
// of one (12 digits or more).
func (s *Store) Find(name string) (*Stored, error) {
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	r, rerr := reference.Parse(name)
	prefix := strings.TrimPrefix(name, "sha256:")
	for _, info := range list {
		if rerr == nil && slices.Contains(info.Names, r.Familiar()) || len(prefix) >= 12 && strings.HasPrefix(keyOf(info.Digest), prefix) {
			return info, nil
		}
	}
	return nil, &sandbox.Error{Op: "image " + name, Kind: sandbox.ErrNotFound, Problem: "it is not here", Hint: "caisson image ls lists what is"}
}

// Remove removes an image with all its names. One that a sandbox uses is
// ErrUnavailable.
func (s *Store) Remove(info *Stored) error {
	key := keyOf(info.Digest)
	if !s.images().remove(s.images().prefix + key) {
		return &sandbox.Error{Op: "remove image " + info.Digest, Kind: sandbox.ErrUnavailable, Problem: "a sandbox uses it, or it cannot be written to", Hint: "try again when that has ended"}
	}
	names, err := s.allNames()
	if err != nil {
		return err
	}
	s.forget(names[info.Digest])
	s.trees().remove(s.trees().prefix + key)
	more, err := s.keys(s.more().prefix)
	for _, m := range more {
		if strings.HasPrefix(m, key) {
			s.more().remove(s.more().prefix + m)
		}
	}
	return err
}

// Prune removes the images without a name, or with all every one, except those
// that are in use; and what is left of other formats and of dead builders.
func (s *Store) Prune(all bool) ([]*Stored, error) {
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	var gone []*Stored
	for _, info := range list {
		if (all || len(info.Names) == 0) && s.Remove(info) == nil {
			gone = append(gone, info)
		}
	}
	s.images().prune("")
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return gone, cacheError("prune images", err)
	}
	for _, e := range entries {
		kind, rest, ok := strings.Cut(e.Name(), "-")
		key, _, _ := strings.Cut(strings.TrimPrefix(rest, format), "-")
		if !ok || !slices.Contains([]string{"image", "tree", "more"}, kind) {
			continue
		}
		if _, err := s.info("sha256:" + key); err != nil || !strings.HasPrefix(rest, format) {
			s.images().remove(e.Name())
		}
	}
	return gone, nil
}
