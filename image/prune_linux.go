// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// List lists the images that are here, the newest first. Of what [Store.KeepWhile] cannot tell
// it says that it is not in use; Remove and Prune fail then.
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
		if info.InUse = s.inUse(key); !info.InUse && s.kept != nil {
			info.InUse, _ = s.kept(info.Digest) // who removes it asks again
		}
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
	if err != nil && !errors.Is(err, os.ErrNotExist) {
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
	name := s.images().prefix + key
	f, done := s.images().take(name)
	defer done()
	_, err := os.Lstat(filepath.Join(s.dir, name))
	return f == nil && err == nil
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
func (s *Store) Remove(info *Stored) error { return s.remove(info, true) }

// Discard removes an image that has no name, unless it is used.
func (s *Store) Discard(info *Stored) error { return s.remove(info, false) }

// remove is Remove; with named false an image that has a name stays. Names go first, and
// while the image cannot be had: a pull gives it its name again afterwards.
func (s *Store) remove(info *Stored, named bool) error {
	key := keyOf(info.Digest)
	var err error
	may := func() bool {
		if s.kept != nil {
			var kept bool
			if kept, err = s.kept(info.Digest); err != nil || kept {
				return false
			}
		}
		var names map[string][]resolved
		if names, err = s.allNames(); err != nil || !named && len(names[info.Digest]) > 0 {
			return false
		}
		s.forget(names[info.Digest])
		return true
	}
	if !s.images().remove(s.images().prefix+key, may) {
		if err != nil {
			return err
		}
		return &sandbox.Error{Op: "remove image " + info.Digest, Kind: sandbox.ErrUnavailable, Problem: "a sandbox uses it, or goes on with it when it is resumed; or it cannot be written to", Hint: "try again when that has ended"}
	}
	if s.onGone != nil {
		s.onGone()
	}
	s.trees().remove(s.trees().prefix+key, nil)
	more, err := s.keys(s.more().prefix)
	for _, m := range more {
		if strings.HasPrefix(m, key) {
			s.more().remove(s.more().prefix+m, nil)
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
		if !all && len(info.Names) > 0 {
			continue
		}
		if s.kept != nil {
			if _, err := s.kept(info.Digest); err != nil {
				return gone, err
			}
		}
		if s.remove(info, all) == nil {
			gone = append(gone, info)
		}
	}
	s.images().prune("")
	s.pruneNames()
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return gone, cacheError("prune images", err)
	}
	for _, e := range entries {
		kind, rest, ok := strings.Cut(e.Name(), "-")
		key, _, _ := strings.Cut(strings.TrimPrefix(rest, format), "-")
		if !ok || !slices.Contains([]string{"image", "tree", "more"}, kind) {
			continue
		}
		left := func() bool {
			_, err := s.info("sha256:" + key)
			return err != nil || !strings.HasPrefix(rest, format)
		}
		if left() {
			s.images().remove(e.Name(), left) // it may be used since
		}
	}
	return gone, nil
}
