// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	minPrefix = 4 // characters of an ID that find it
	idLength  = 8
)

// List gives the sets of a key, the newest first. The operator, "", sees all.
func (s *Store) List(owner string) ([]Summary, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var list []Summary
	for _, id := range names {
		sum, err := s.summary(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, storeError("list the change sets", err)
		}
		if sum.visible(owner) && s.o.Now().Before(sum.Expires) {
			list = append(list, *sum)
		}
	}
	slices.SortStableFunc(list, func(a, b Summary) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

func (s *Summary) visible(owner string) bool { return owner == "" || s.Owner == owner }

// Get gives the set with an ID, or with the one ID that begins so: 4 characters are
// enough where no other does. The operator, "", sees all.
func (s *Store) Get(owner, id string) (*Set, error) {
	list, err := s.List(owner)
	if err != nil {
		return nil, err
	}
	if len(id) >= minPrefix {
		list = slices.DeleteFunc(list, func(sum Summary) bool { return !strings.HasPrefix(sum.ID, id) })
	} else {
		list = nil
	}
	switch len(list) {
	case 0:
		return nil, noSet(id)
	case 1:
		return s.read(list[0].ID)
	}
	return nil, &sandbox.Error{Op: "change set " + sandbox.Quoted(id), Kind: sandbox.ErrInvalid, Problem: "more than one begins so", Hint: "write " + list[0].ID + " or " + list[1].ID}
}

// Drop removes a set. The ID is a whole one, as a Set has it.
func (s *Store) Drop(id string) error {
	if !validID(id) {
		return noSet(id)
	}
	return s.exclusively(func() error {
		lock, err := s.lock(id, lockTry)
		if err != nil {
			return err
		}
		defer lock.Close()
		s.abandon(id)
		return s.remove(id)
	})
}

// lock locks a set for as long as the file is open.
func (s *Store) lock(id string, how int) (*os.File, error) {
	if !validID(id) {
		return nil, noSet(id)
	}
	if _, err := os.Lstat(s.path(id, summaryFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, noSet(id)
	}
	lock, err := lockFile(s.path(id, setLock), how)
	switch {
	case errors.Is(err, errLocked):
		return nil, &sandbox.Error{Op: "change set " + id, Kind: sandbox.ErrConflict, Problem: "another call uses it", Hint: "try again when that has ended"}
	case errors.Is(err, fs.ErrNotExist):
		return nil, noSet(id)
	case err != nil:
		return nil, storeError("change set "+id, err)
	}
	return lock, nil
}

// remove takes a set away, under the store's lock. It loses its name first, so that no
// half of it is ever seen.
func (s *Store) remove(id string) error {
	gone := s.path(makingDir + id)
	if err := os.Rename(s.path(id), gone); err != nil {
		return storeError("remove change set "+id, err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return storeError("remove change set "+id, err)
	}
	return nil
}

// sweep removes, under the store's lock, what is too old and what is not whole. What is
// in use, or half applied, stays.
func (s *Store) sweep() error {
	all, err := os.ReadDir(s.dir)
	if err != nil {
		return storeError("open the change sets", err)
	}
	for _, e := range all {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, makingDir):
			if lock, err := lockFile(s.path(name, setLock), lockTry); err == nil {
				_ = os.RemoveAll(s.path(name))
				lock.Close()
			}
		case validID(name):
			s.expire(name)
		}
	}
	return nil
}

func (s *Store) expire(id string) {
	sum, err := s.summary(id)
	if err != nil || s.o.Now().Before(sum.Expires) || sum.State.Unfinished {
		return
	}
	if lock, err := s.lock(id, lockTry); err == nil {
		_ = s.remove(id)
		lock.Close()
	}
}

// names are the IDs of the sets.
func (s *Store) names() ([]string, error) {
	all, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, storeError("list the change sets", err)
	}
	var names []string
	for _, e := range all {
		if validID(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func validID(s string) bool {
	return len(s) == idLength && strings.Trim(s, "0123456789abcdef") == ""
}

func noSet(id string) error {
	return &sandbox.Error{Op: "change set " + sandbox.Quoted(sandbox.Clip(id, 40)), Kind: sandbox.ErrNotFound, Problem: "there is none", Hint: "list those that are kept; they are kept for some days only"}
}
