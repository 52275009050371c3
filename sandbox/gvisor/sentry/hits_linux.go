// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/limits"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// HitsFD is the number under which the shim passes a file of [HitsSize] bytes to the
// kernel, in which it notes when a call last failed for a limit. Memory that both have
// tells also what a kernel saw that was killed. Like [ScratchFD] it never becomes a
// descriptor inside.
const HitsFD = ChangesFD - 1

// hitsVariable is for that file what statusVariable is for the status pipe.
const hitsVariable = "CAISSON_HITS_FD"

// HitsAnnotation is the key in a spec's annotations under which the driver says, as JSON
// of [Held], which limits the kernel holds itself.
const HitsAnnotation = "dev.caisson.limits"

// Held are limits that the kernel holds.
type Held struct {
	// Processes is 0 where there is no limit of them.
	Processes uint64 `json:"processes,omitempty"`
	// Processors is how many of them programs see; 0 is all.
	Processors uint `json:"processors,omitempty"`
	// Scratch are writable directories, each with the name of the limit of its bytes.
	Scratch map[string]string `json:"scratch,omitempty"`
}

// hitNames are the limits in the order in which they stand in the file.
var hitNames = []string{"processes", "disk", "tmp", "inodes"}

// HitsSize is how long the file is: a time for each, in nanoseconds since 1970, or 0.
const HitsSize = 4 * 8

// ReadHits says when each limit was last hit, from what is in the file.
func ReadHits(b []byte) map[string]time.Time {
	hits := map[string]time.Time{}
	for i, name := range hitNames {
		if len(b) < 8*(i+1) {
			break
		}
		if ns := int64(binary.NativeEndian.Uint64(b[8*i:])); ns > 0 {
			hits[name] = time.Unix(0, ns)
		}
	}
	return hits
}

// hits is what notes them.
type hits struct {
	Held
	last [HitsSize / 8]*atomic.Int64
}

// parseHits reads HitsAnnotation; nil where there is none.
func parseHits(annotation string) (*hits, error) {
	if annotation == "" {
		return nil, nil
	}
	h := &hits{}
	if err := json.Unmarshal([]byte(annotation), &h.Held); err != nil {
		return nil, fmt.Errorf("which limits are to be noted: %w", err)
	}
	fd, err := strconv.Atoi(os.Getenv(hitsVariable))
	if err != nil {
		return nil, errors.New("limits are to be noted in a file that is missing")
	}
	page, err := unix.Mmap(fd, 0, HitsSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("the file in which limits are noted: %w", err)
	}
	for i := range h.last {
		h.last[i] = (*atomic.Int64)(unsafe.Pointer(&page[8*i]))
	}
	return h, nil
}

func (h *hits) note(name string) {
	for i, n := range hitNames {
		if n == name {
			h.last[i].Store(time.Now().UnixNano())
		}
	}
}

// forkCalls fail with EAGAIN at the limit of processes; clone3 is refused.
var forkCalls = []string{"fork", "vfork", "clone"}

// spaceCalls fail with ENOSPC where a scratch directory is full. Those from open on make
// names, or copy a file into a layer.
var spaceCalls = []string{
	"write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "splice", "copy_file_range", "fallocate", "truncate", "ftruncate",
	"open", "openat", "creat", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link", "linkat",
	"rename", "renameat", "renameat2", "chmod", "fchmodat", "chown", "lchown", "fchownat", "utimensat", "setxattr", "lsetxattr",
}

// hold has the calls of table that fail for a limit note it.
func (h *hits) hold(table *kernel.SyscallTable) {
	look := map[string]func(*kernel.Task, arch.SyscallArguments, error){}
	for _, name := range forkCalls {
		look[name] = h.afterFork
	}
	for _, name := range spaceCalls {
		look[name] = h.afterWrite
	}
	look["fallocate"] = h.afterAllocate
	for number, call := range table.Table {
		after := look[call.Name]
		if after == nil {
			continue
		}
		do := call.Fn
		call.Fn = func(t *kernel.Task, number uintptr, a arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			ret, ctrl, err := do(t, number, a)
			if err != nil {
				after(t, a, err)
			}
			return ret, ctrl, err
		}
		table.Table[number] = call
	}
	table.Init() // copies Table to where the kernel looks
}

// afterFork notes the limit of processes, and not a lower one that a program has set.
func (h *hits) afterFork(t *kernel.Task, _ arch.SyscallArguments, err error) {
	if h.Processes > 0 && linuxerr.Equals(linuxerr.EAGAIN, err) && t.ThreadGroup().Limits().Get(limits.ProcessCount).Cur >= h.Processes {
		h.note("processes")
	}
}

// afterWrite notes what is full now: a file system that refuses a byte or a name has no
// other, and one of the host's is none of these.
func (h *hits) afterWrite(t *kernel.Task, _ arch.SyscallArguments, err error) {
	if !linuxerr.Equals(linuxerr.ENOSPC, err) {
		return
	}
	for dir, limit := range h.Scratch {
		st, err := statFS(t, dir)
		if err != nil {
			continue
		}
		if st.Blocks > 0 && st.BlocksAvailable == 0 {
			h.note(limit)
		}
		if st.Files > 0 && st.FilesFree == 0 {
			h.note("inodes")
		}
	}
}

// afterAllocate notes the limit of the file's directory, which need not be full: all that
// was asked for is refused.
func (h *hits) afterAllocate(t *kernel.Task, a arch.SyscallArguments, err error) {
	if !linuxerr.Equals(linuxerr.ENOSPC, err) {
		return
	}
	file := t.GetFile(a[0].Int())
	if file == nil {
		return
	}
	defer file.DecRef(t)
	for dir, limit := range h.Scratch {
		if at, err := scratchAt(t, dir); err == nil {
			if at.Mount() == file.Mount() {
				h.note(limit)
			}
			at.DecRef(t)
		}
	}
}

// scratchAt is what is mounted at dir, for every process and whatever its root
// is.
func scratchAt(t *kernel.Task, dir string) (vfs.VirtualDentry, error) {
	root := t.MountNamespace().Root(t)
	defer root.DecRef(t)
	return t.Kernel().VFS().GetDentryAt(t, auth.NewRootCredentials(t.Kernel().RootUserNamespace()),
		&vfs.PathOperation{Root: root, Start: root, Path: fspath.Parse(dir)}, &vfs.GetDentryOptions{})
}

func statFS(t *kernel.Task, dir string) (linux.Statfs, error) {
	at, err := scratchAt(t, dir)
	if err != nil {
		return linux.Statfs{}, err
	}
	defer at.DecRef(t)
	return t.Kernel().VFS().StatFSAt(t, auth.NewRootCredentials(t.Kernel().RootUserNamespace()), &vfs.PathOperation{Root: at, Start: at})
}
