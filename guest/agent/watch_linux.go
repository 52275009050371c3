// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/internal/envd"
)

// maxWatched bounds the directories of one watch: each costs the kernel about
// a kilobyte.
const maxWatched = 8192

// watchedFor is what is watched of a directory.
const watchedFor = syscall.IN_CREATE | syscall.IN_MOVED_TO | syscall.IN_MOVED_FROM | syscall.IN_DELETE |
	syscall.IN_MODIFY | syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF

// watch tells what changes in a directory and, if it is recursive, below it.
// Only its one reader touches it.
type watch struct {
	agent     *Agent
	user      user
	root      string
	recursive bool
	entries   bool

	file *os.File
	dirs map[int32]*watchedDir
}

// watchedDir is one directory of a watch.
type watchedDir struct {
	name string // from the root; "" is the root itself
	// seen are the names that were found when the watch was put up, and of which
	// an event may come, or may not: they appeared around that moment.
	seen map[string]bool
}

// newWatch begins to watch.
func (a *Agent) newWatch(u user, q *envd.WatchRequest) (*watch, error) {
	root, err := u.path(q.Path)
	if err != nil {
		return nil, err
	}
	w := &watch{agent: a, user: u, root: root, recursive: q.Recursive, entries: q.IncludeEntry, dirs: map[int32]*watchedDir{}}
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, &connectError{codeInternal, "error creating watcher: " + err.Error()}
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	err = u.as(func() error {
		i, err := os.Stat(root)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &connectError{codeNotFound, fmt.Sprintf("path %s not found: %v", root, err)}
		case err != nil:
			return err
		case !i.IsDir():
			return &connectError{codeInvalid, fmt.Sprintf("path %s not a directory", root)}
		}
		return w.add("", nil)
	})
	if err != nil {
		w.file.Close()
		return nil, err
	}
	return w, nil
}

// add watches a directory and, if the watch is recursive, those below it. What
// it finds goes to found, which may be nil; the caller is the user.
func (w *watch) add(name string, found func(name string)) error {
	if len(w.dirs) >= maxWatched {
		return &connectError{codeExhausted, fmt.Sprintf("watcher error: more than %d directories", maxWatched)}
	}
	flags := uint32(watchedFor | syscall.IN_ONLYDIR)
	if name != "" {
		flags |= syscall.IN_DONT_FOLLOW
	}
	var wd int
	var err error
	if e := control(w.file, func(fd uintptr) { wd, err = syscall.InotifyAddWatch(int(fd), path.Join(w.root, name), flags) }); e != nil {
		return e
	}
	switch {
	case err != nil && name != "" && err != syscall.ENOSPC:
		return nil // it is gone, or not the user's to read
	case err == syscall.EACCES:
		return &connectError{codePermission, fmt.Sprintf("error adding path %s to watcher: %v", path.Join(w.root, name), err)}
	case err != nil:
		return &connectError{codeInternal, fmt.Sprintf("error adding path %s to watcher: %v", path.Join(w.root, name), err)}
	}
	dir := &watchedDir{name: name}
	w.dirs[int32(wd)] = dir
	if !w.recursive {
		return nil
	}
	// What appeared before the watch was up sent no event.
	inside, err := os.ReadDir(path.Join(w.root, name))
	if err != nil {
		return nil
	}
	for _, e := range inside {
		below := path.Join(name, e.Name())
		if found != nil {
			if dir.seen == nil {
				dir.seen = map[string]bool{}
			}
			dir.seen[e.Name()] = true
			found(below)
		}
		if e.IsDir() {
			if err := w.add(below, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget stops watching a directory that is no longer here, and those below it.
func (w *watch) forget(name string) {
	for wd, d := range w.dirs {
		if d.name == name || strings.HasPrefix(d.name, name+"/") {
			control(w.file, func(fd uintptr) { syscall.InotifyRmWatch(int(fd), uint32(wd)) })
			delete(w.dirs, wd)
		}
	}
}

func control(f *os.File, do func(fd uintptr)) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return c.Control(do)
}

// close ends the watch; run returns.
func (w *watch) close() { w.file.Close() }

// run hands every change to emit until that fails or the watch is closed.
func (w *watch) run(emit func(*envd.Change) error) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return &connectError{codeInternal, "watcher error: " + err.Error()}
		}
		for rest := buf[:n]; len(rest) > 0; {
			var e inotifyEvent
			if e, rest, err = nextEvent(rest); err != nil {
				return err
			}
			if err := w.happened(e, emit); err != nil {
				return err
			}
		}
	}
}

// inotifyEvent is inotify(7)'s.
type inotifyEvent struct {
	wd   int32
	mask uint32
	name string
}

// nextEvent takes one event from b.
func nextEvent(b []byte) (e inotifyEvent, rest []byte, err error) {
	if len(b) < syscall.SizeofInotifyEvent {
		return e, nil, errors.New("the kernel sent half an event")
	}
	n := int64(binary.NativeEndian.Uint32(b[12:]))
	if int64(len(b)) < syscall.SizeofInotifyEvent+n {
		return e, nil, errors.New("the kernel sent half a name")
	}
	e.wd = int32(binary.NativeEndian.Uint32(b))
	e.mask = binary.NativeEndian.Uint32(b[4:])
	e.name = strings.TrimRight(string(b[syscall.SizeofInotifyEvent:syscall.SizeofInotifyEvent+n]), "\x00")
	return e, b[syscall.SizeofInotifyEvent+n:], nil
}

// happened follows one event.
func (w *watch) happened(e inotifyEvent, emit func(*envd.Change) error) error {
	if e.mask&syscall.IN_Q_OVERFLOW != 0 {
		return &connectError{codeInternal, "watcher error: there were more events than the kernel keeps"}
	}
	dir := w.dirs[e.wd]
	switch {
	case dir == nil:
		return nil // of a directory that was moved away
	case e.mask&syscall.IN_IGNORED != 0:
		delete(w.dirs, e.wd)
		return nil
	case e.name == "" && dir.name != "":
		return nil // its parent says the same
	}
	name := path.Join(dir.name, e.name)
	isDir := e.mask&syscall.IN_ISDIR != 0
	appeared := e.mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0
	if e.mask&(syscall.IN_DELETE|syscall.IN_MOVED_FROM) != 0 {
		delete(dir.seen, e.name)
		if isDir && w.recursive {
			w.forget(name)
		}
	}
	if appeared && dir.seen[e.name] {
		delete(dir.seen, e.name)
		return nil // it was told when its directory appeared
	}
	for _, k := range kinds(e.mask) {
		if err := w.tell(name, k, emit); err != nil {
			return err
		}
	}
	if !appeared || !isDir || !w.recursive {
		return nil
	}
	var below []string
	if err := w.user.as(func() error {
		return w.add(name, func(name string) { below = append(below, name) })
	}); err != nil {
		return err
	}
	for _, name := range below {
		if err := w.tell(name, envd.Created, emit); err != nil {
			return err
		}
	}
	return nil
}

// kinds are what an event means to envd, in its order.
func kinds(mask uint32) (all []string) {
	for _, k := range []struct {
		mask uint32
		kind string
	}{
		{syscall.IN_CREATE | syscall.IN_MOVED_TO, envd.Created},
		{syscall.IN_MOVED_FROM | syscall.IN_MOVE_SELF, envd.Renamed},
		{syscall.IN_ATTRIB, envd.Chmodded},
		{syscall.IN_MODIFY, envd.Changed},
		{syscall.IN_DELETE | syscall.IN_DELETE_SELF, envd.Removed},
	} {
		if mask&k.mask != 0 {
			all = append(all, k.kind)
		}
	}
	return all
}

// tell emits one change, with its entry where there is one to be had: what was
// removed or renamed may be another by now.
func (w *watch) tell(name, kind string, emit func(*envd.Change) error) error {
	if name == "" {
		name = "."
	}
	c := &envd.Change{Name: strings.ToValidUTF8(name, "\ufffd"), Type: kind}
	if w.entries && kind != envd.Removed && kind != envd.Renamed {
		w.user.as(func() (err error) {
			c.Entry, err = w.agent.entry(path.Join(w.root, name))
			return err
		})
	}
	return emit(c)
}
