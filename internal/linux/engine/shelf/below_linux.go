// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// runs is the directory of a state directory that has those of single sandboxes
// in it, and the shelf.
const runs = "run"

// below opens the program with that label that is kept below a state directory,
// which nobody has judged yet.
//
// Each directory on the way is opened in the one before, and is root's or this
// user's, so that nobody else can put another in its place. It is stricter than
// package store, where the same directory is opened for good: no link is followed,
// whosever it is. What is refused here is done later, and made there.
func (l Label) below(state string) (*os.File, error) {
	if state == "" || state[0] != '/' {
		return nil, errors.New("engine: " + strconv.Quote(state) + " is no state directory")
	}
	dir, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { unix.Close(dir) }()
	for name := range strings.SplitSeq(state, "/") {
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			return nil, errors.New("engine: " + strconv.Quote(state) + " has dots in it")
		}
		next, err := ancestor(dir, name)
		if err != nil {
			return nil, err
		}
		unix.Close(dir)
		dir = next
	}
	s, err := openAt(dir, runs)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Find(l)
}

// ancestor opens a directory in which nobody but root and this user can swap names.
func ancestor(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	shared := st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0
	if shared || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		unix.Close(fd)
		return -1, errors.New("engine: " + name + " is not private")
	}
	return fd, nil
}
