// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/wire"
)

// maxVisited bounds how many names a collection looks at.
const maxVisited = 200_000

// serveCollect streams the files that match. It goes by open directories and
// follows no link anywhere, so what code inside moves meanwhile leads nowhere.
func (a *Agent) serveCollect(w http.ResponseWriter, r *http.Request) {
	var q wire.CollectRequest
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err == nil {
		err = json.Unmarshal(b, &q)
	}
	if err != nil {
		writeError(w, &connectError{codeInvalid, err.Error()})
		return
	}
	globs, err := q.Check()
	if err != nil {
		writeError(w, &connectError{codeInvalid, err.Error()})
		return
	}
	u, err := a.user(r)
	if err != nil {
		writeError(w, asConnect(err))
		return
	}
	c := &collector{request: &q, globs: globs, out: newFrameWriter(w)}
	var done wire.DoneEvent
	if err := u.as(c.collect); err != nil {
		done.Error = err.Error()
	}
	c.out.json(wire.Done, done)
}

// collector is one collection.
type collector struct {
	request *wire.CollectRequest
	globs   []wire.Glob
	out     *frameWriter

	visited, files int
	bytes          int64
	buf            [32 << 10]byte
}

const openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK

// collect goes down to the root, name by name, and collects from there.
func (c *collector) collect() error {
	fd, err := unix.Open("/", openDir, 0)
	if err != nil {
		return err
	}
	at := "/"
	for name := range strings.SplitSeq(strings.Trim(c.request.Root, "/"), "/") {
		if name == "" {
			continue
		}
		at = path.Join(at, name)
		next, err := unix.Openat(fd, name, openDir, 0)
		unix.Close(fd)
		switch err {
		case nil:
		case unix.ELOOP, unix.ENOTDIR:
			return fmt.Errorf("%s is not a directory, or is a link", at)
		default:
			return fmt.Errorf("open %s: %w", at, err)
		}
		fd = next
	}
	d := os.NewFile(uintptr(fd), at)
	defer d.Close()
	return c.directory(d, "", 0)
}

// directory collects from d, which is rel below the root.
func (c *collector) directory(d *os.File, rel string, depth int) error {
	var names []string
	for {
		more, err := d.Readdirnames(1024)
		names = append(names, more...)
		if c.visited += len(more); c.visited > maxVisited {
			return fmt.Errorf("there are more than %d names to look at", maxVisited)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	slices.Sort(names)
	// What is renamed while a directory is read may come twice (readdir(3)), and
	// no file is taken twice.
	for _, name := range slices.Compact(names) {
		if err := c.name(d, path.Join(rel, name), name, depth); err != nil {
			return err
		}
	}
	return nil
}

// name collects one name in d and what is below it.
func (c *collector) name(d *os.File, rel, name string, depth int) error {
	match := slices.ContainsFunc(c.globs, func(g wire.Glob) bool { return g.Match(rel) })
	below := slices.ContainsFunc(c.globs, func(g wire.Glob) bool { return g.Below(rel) })
	if !match && !below {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil // gone
	}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFDIR && below:
		if depth >= c.request.MaxDepth {
			return fmt.Errorf("%q lies deeper than %d directories", rel, c.request.MaxDepth)
		}
		fd, err := unix.Openat(int(d.Fd()), name, openDir, 0)
		if err != nil {
			return c.skip(rel, err.Error(), "")
		}
		sub := os.NewFile(uintptr(fd), rel)
		defer sub.Close()
		return c.directory(sub, rel, depth+1)
	case !match || kind == unix.S_IFDIR:
		return nil
	case kind == unix.S_IFLNK:
		if err := c.count(); err != nil {
			return err
		}
		target := make([]byte, 4096)
		n, _ := unix.Readlinkat(int(d.Fd()), name, target)
		return c.skip(rel, "symlink", string(target[:max(n, 0)]))
	case kind != unix.S_IFREG:
		return c.skip(rel, "not a file", "")
	}
	return c.file(d, rel, name)
}

// file sends one file. It may have become something else since it was looked
// at, so it is looked at again when it is open.
func (c *collector) file(d *os.File, rel, name string) error {
	if err := wire.CheckPath(rel); err != nil {
		return c.skip(rel, "its name: "+err.Error(), "")
	}
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := unix.Openat(int(d.Fd()), name, flags, 0)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = errors.New("permission denied")
		}
		return c.skip(rel, err.Error(), "")
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	i, err := f.Stat()
	if err != nil || !i.Mode().IsRegular() {
		return c.skip(rel, "not a file", "")
	}
	if err := c.count(); err != nil {
		return err
	}
	if err := c.out.json(wire.File, wire.FileEvent{Path: rel, Mode: uint32(i.Mode().Perm())}); err != nil {
		return err
	}
	var end wire.FileEndEvent
	for {
		n, err := f.Read(c.buf[:])
		if c.bytes += int64(n); c.bytes > c.request.MaxBytes {
			return fmt.Errorf("the files are larger than %d bytes", c.request.MaxBytes)
		}
		if n > 0 {
			if err := c.out.data(wire.Data, c.buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			end.Error = err.Error()
			break
		}
	}
	return c.out.json(wire.FileEnd, end)
}

// count counts a file or a link that is offered.
func (c *collector) count() error {
	if c.files++; c.files > c.request.MaxFiles {
		return fmt.Errorf("there are more than %d files", c.request.MaxFiles)
	}
	return nil
}

func (c *collector) skip(rel, reason, target string) error {
	return c.out.json(wire.Skipped, wire.SkippedEvent{Path: rel, Reason: reason, Target: target})
}
