// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
)

// List gives all volumes, those of one workspace beside each other.
func (s *Store) List() ([]Volume, error) {
	entries, err := os.ReadDir(s.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, listError(err)
	}
	var list []Volume
	for _, e := range entries {
		if !validID(e.Name()) {
			continue // one that is being made or removed
		}
		v, err := s.look(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, listError(err)
		}
		list = append(list, *v)
	}
	slices.SortFunc(list, func(a, b Volume) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

func listError(err error) error {
	return &sandbox.Error{Op: "list the volumes", Kind: sandbox.ErrUnavailable, Problem: "they cannot be read", Cause: err}
}

// look reads what is known of a volume, and counts what it has.
func (s *Store) look(id string) (*Volume, error) {
	b, err := os.ReadFile(s.path(id, aboutFile))
	if err != nil {
		return nil, err
	}
	var a about
	if json.Unmarshal(b, &a) != nil {
		a = about{Name: "unknown"} // a power failure can leave an empty file; it can still be removed
	}
	info, err := os.Stat(s.path(id, aboutFile))
	if err != nil {
		return nil, err
	}
	src, err := s.open(id)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	v := &Volume{ID: id, Name: a.Name, Workspace: a.Workspace, Made: a.Made, Used: info.ModTime().UTC()}
	bytes, whole := sizeOf(src.File)
	v.Bytes, v.Partly = bytes, !whole
	var st unix.Stat_t
	v.Gone = unix.Lstat(a.Workspace, &st) != nil || st.Dev != a.Dev || st.Ino != a.Ino || btimeOf(unix.AT_FDCWD, a.Workspace) != a.Btime
	return v, nil
}

// Look gives a workspace's volume; one that is not there has no ID.
func (s *Store) Look(name string, workspace *hostpath.Source) (*Volume, error) {
	v, err := s.look(aboutOf(name, workspace).id())
	if errors.Is(err, fs.ErrNotExist) {
		return &Volume{Name: name, Workspace: workspace.Real}, nil
	}
	if err != nil {
		return nil, listError(err)
	}
	return v, nil
}

// Find gives the volume with an ID, or with the one ID that begins so: 4 characters are
// enough where no other does.
func (s *Store) Find(id string) (*Volume, error) {
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(v Volume) bool { return len(id) < minPrefix || !strings.HasPrefix(v.ID, id) })
	switch len(list) {
	case 0:
		return nil, &sandbox.Error{Op: "volume " + sandbox.Quoted(id), Kind: sandbox.ErrNotFound, Problem: "there is none", Hint: "caisson volume ls lists them"}
	case 1:
		return &list[0], nil
	}
	return nil, &sandbox.Error{Op: "volume " + sandbox.Quoted(id), Kind: sandbox.ErrInvalid, Problem: "more than one begins so", Hint: "write " + list[0].ID + " or " + list[1].ID}
}

// Remove removes a volume that no sandbox has. It loses its name first, so that no half
// of it is ever mounted.
func (s *Store) Remove(id string) error {
	src, err := s.open(id)
	if err != nil {
		return removeError(id, err)
	}
	defer src.Close()
	src.Name = "volume " + id
	gone := goneDir + rand.Text()
	err = src.Unclaimed(s.state, func() error { return os.Rename(s.path(id), s.path(gone)) })
	var e *sandbox.Error
	if errors.As(err, &e) {
		return err
	}
	if err != nil {
		return removeError(id, err)
	}
	return s.sweep()
}

// sweep takes away what has lost its name, also what a process left that was killed
// then.
func (s *Store) sweep() error {
	dir, err := os.Open(s.path())
	if err != nil {
		return removeError("", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, goneDir) || strings.HasPrefix(name, makingDir) && s.abandoned(name) {
			err = errors.Join(err, store.RemoveTree(dir, name))
		}
	}
	if err != nil {
		return removeError("", err)
	}
	return nil
}

// making is how long a volume takes to be made at most: some small files.
const making = time.Hour

// abandoned says whether what makes a volume of a name was killed.
func (s *Store) abandoned(name string) bool {
	info, err := os.Lstat(s.path(name))
	return err == nil && time.Since(info.ModTime()) > making
}

func removeError(id string, err error) error {
	return &sandbox.Error{Op: strings.TrimSpace("remove volume " + id), Kind: sandbox.ErrUnavailable, Problem: "it cannot be removed", Hint: "the next caisson volume rm goes on with it", Cause: err}
}
