// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/sandbox"
)

// seePlant finds a planted file, by its inode, among everybody's descriptors.
func seePlant(id string) func(*evidence) string {
	return func(e *evidence) string {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(e.plants.out, id), &st) != nil {
			return ""
		}
		for _, p := range e.ready {
			for _, d := range p.files {
				if d.dev == uint64(st.Dev) && d.ino == st.Ino {
					return fmt.Sprintf("%s holds the canary %s", p, d.link)
				}
			}
		}
		return ""
	}
}

func seeChanged(id string) func(*evidence) string {
	return func(e *evidence) string {
		if e.changed[id] {
			return "the canary on the host was changed"
		}
		return ""
	}
}

func seeTouched(id string) func(*evidence) string {
	return func(e *evidence) string {
		if _, ok := e.touched.Load(id); ok {
			return "the host's service was reached"
		}
		return ""
	}
}

// mounted finds a mount that carries the nonce.
func (e *evidence) mounted(types ...string) string {
	for _, p := range e.insiders() {
		for _, line := range p.mounts {
			_, after, _ := strings.Cut(line, " - ")
			fields := strings.Fields(after)
			if len(fields) >= 2 && fields[1] == e.nonce && slices.Contains(types, fields[0]) {
				return fmt.Sprintf("%s has mounted a %s", p, fields[0])
			}
		}
	}
	return ""
}

// remounted compares the mounts of each process with those before.
func (e *evidence) remounted() string {
	for _, p := range e.insiders() {
		for _, q := range e.start {
			if p.same(q) && p.namespaces["mnt"] == q.namespaces["mnt"] && !slices.Equal(p.mounts, q.mounts) {
				return fmt.Sprintf("the mounts of %s have changed", p)
			}
		}
	}
	return ""
}

// marked says what a file in the workspace must not have on the host.
func (e *evidence) marked(file string) string {
	info, err := os.Stat(file)
	if err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return "a file in the workspace got a set-user-id bit on the host"
	}
	if n, err := unix.Getxattr(file, "security.capability", nil); err == nil && n > 0 {
		return "a file in the workspace got capabilities on the host"
	}
	return ""
}

// leased says that an open of a file of the host waits now. It does not wait itself.
func leased(name string) string {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return "a process that opens the file on the host waits for the sandbox"
	}
	return ""
}

// holds names the first file below dir with text in it. A state directory has images, too:
// what it finds is no word where ctx has ended.
func holds(ctx context.Context, dir, text string) (found string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return fs.SkipAll
		}
		if err != nil || found != "" || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read by its owner holds nothing for others
		}
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		if contains(ctx, f, text) {
			found = filepath.Base(path)
		}
		return nil
	})
	return found
}

func contains(ctx context.Context, r io.Reader, text string) bool {
	block, kept := make([]byte, 1<<20), []byte(nil)
	for ctx.Err() == nil {
		n, err := r.Read(block)
		kept = append(kept, block[:n]...)
		if bytes.Contains(kept, []byte(text)) {
			return true
		}
		if err != nil {
			return false
		}
		kept = append([]byte(nil), kept[max(0, len(kept)-len(text)):]...)
	}
	return false
}

// runnable says what a program of the host would run of what came into the workspace
// without being told.
func (e *evidence) runnable() string {
	if why := seeChanged("F26")(e); why != "" {
		return why
	}
	if _, err := os.Stat(filepath.Join(e.workspace, ".git/HEAD")); err != nil {
		return "the workspace's repository is spoilt: git looks for another around it"
	}
	for _, name := range probe.ToldFiles() {
		path := filepath.Join(e.workspace, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if !slices.ContainsFunc(e.told, func(f sandbox.Finding) bool {
			return f.Action == sandbox.ActionInspect && strings.HasPrefix(path, filepath.Clean(f.Text)+"/")
		}) {
			return name + " came into being, and is no finding"
		}
	}
	return ""
}
