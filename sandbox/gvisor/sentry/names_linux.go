// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"github.com/caisson-run/caisson/sandbox"
)

// NamesAnnotation is the key in a spec's annotations under which the driver says, as JSON of
// [Names], what the sandbox is called; without it, it has the root's names.
const NamesAnnotation = "dev.caisson.names"

// Names are a sandbox's own.
type Names struct {
	Hostname string             `json:"hostname"`
	Files    []sandbox.NameFile `json:"files"`
}

// names are Names that are to be in force.
type names struct {
	Names
	done atomic.Bool
	set  sync.Mutex
}

// parseNames reads NamesAnnotation; nil where there is none.
func parseNames(annotation string) (*names, error) {
	if annotation == "" {
		return nil, nil
	}
	n := &names{}
	if err := json.Unmarshal([]byte(annotation), &n.Names); err != nil {
		return nil, fmt.Errorf("the sandbox's names: %w", err)
	}
	if n.Hostname == "" || len(n.Hostname) > linux.UTSLen {
		return nil, errors.New("the sandbox's host name is empty or too long")
	}
	return n, nil
}

// hold has the first system call of all set the names, and every other one wait for that: in
// a kernel that goes on from a snapshot no program comes to look at the names that it had.
func (n *names) hold(table *kernel.SyscallTable) {
	for number, call := range table.Table {
		do := call.Fn
		call.Fn = func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			if !n.done.Load() {
				n.apply(t)
			}
			return do(t, number, args)
		}
		table.Table[number] = call
	}
	table.Init() // copies Table to where the kernel looks
}

// apply sets the names where they are not set. The host's name is the last: where that is
// right, all is. Its owner looks at it, through the agent, so that what could not be set is
// not passed over. A sandbox that goes on as itself has it already, and keeps
// what its root has written into these files.
func (n *names) apply(t *kernel.Task) {
	n.set.Lock()
	defer n.set.Unlock()
	if n.done.Load() {
		return
	}
	defer n.done.Store(true)
	uts := t.UTSNamespace()
	if uts.HostName() == n.Hostname {
		return
	}
	k := t.Kernel()
	f := nameWriter{vfs: k.VFS(), ctx: k.SupervisorContext(), creds: auth.NewRootCredentials(k.RootUserNamespace())}
	f.root = t.MountNamespace().Root(f.ctx)
	defer f.root.DecRef(f.ctx)
	for _, file := range n.Files {
		if f.show(file) != nil {
			return
		}
	}
	uts.SetHostName(f.ctx, n.Hostname)
}

// nameWriter writes files of a sandbox's root.
type nameWriter struct {
	vfs   *vfs.VirtualFilesystem
	ctx   context.Context
	creds *auth.Credentials
	root  vfs.VirtualDentry
}

// maxHosts is how much of a hosts file is read, in bytes.
const maxHosts = 1 << 20

// show makes a file say what it is to. What is not there, or is a link, is left, and so is a
// hosts file that is too large. A root that cannot be written gets a file of this kernel's
// over it: nothing of the host has to be mounted for it, so that a sandbox without a gofer
// needs none.
func (w *nameWriter) show(file sandbox.NameFile) error {
	at := in(w.root, file.Target)
	st, err := w.vfs.StatAt(w.ctx, w.creds, at, &vfs.StatOptions{Mask: linux.STATX_TYPE})
	switch {
	case linuxerr.Equals(linuxerr.ENOENT, err), linuxerr.Equals(linuxerr.ENOTDIR, err):
		return nil
	case err != nil:
		return err
	case st.Mode&linux.S_IFMT != linux.S_IFREG:
		return nil
	}
	if own, err := w.own(file.Target); err != nil || !own {
		return err
	}
	text := file.Text
	if file.Target == sandbox.HostsFile {
		was, err := w.read(at)
		if linuxerr.Equals(linuxerr.EFBIG, err) {
			return nil
		}
		if err != nil {
			return err
		}
		text = sandbox.HostsFor(was, text)
	}
	if err := w.cover(at); err != nil {
		return err
	}
	return w.write(at, text)
}

// own says whether no link leads to a file: it may lead into what the operator has mounted.
func (w *nameWriter) own(target string) (bool, error) {
	there, err := w.vfs.GetDentryAt(w.ctx, w.creds, in(w.root, target), &vfs.GetDentryOptions{})
	if err != nil {
		return false, err
	}
	defer there.DecRef(w.ctx)
	name, err := w.vfs.PathnameReachable(w.ctx, w.root, there)
	return name == target, err
}

// cover mounts an empty file of memory over one that cannot be written.
func (w *nameWriter) cover(at *vfs.PathOperation) error {
	there, err := w.vfs.GetDentryAt(w.ctx, w.creds, at, &vfs.GetDentryOptions{})
	if err != nil {
		return err
	}
	defer there.DecRef(w.ctx)
	if !there.Mount().ReadOnly() {
		return nil
	}
	_, err = w.vfs.MountAt(w.ctx, w.creds, "none", at, tmpfs.Name, &vfs.MountOptions{
		Flags:                vfs.MountFlags{NoExec: true, NoSUID: true, NoDev: true},
		GetFilesystemOptions: vfs.GetFilesystemOptions{InternalMount: true, Data: "mode=0644,size=64k", InternalData: tmpfs.FilesystemOpts{RootFileType: linux.S_IFREG}},
	})
	return err
}

func (w *nameWriter) read(at *vfs.PathOperation) (string, error) {
	fd, err := w.vfs.OpenAt(w.ctx, w.creds, at, &vfs.OpenOptions{Flags: linux.O_RDONLY})
	if err != nil {
		return "", err
	}
	defer fd.DecRef(w.ctx)
	data := make([]byte, 4096)
	for n := 0; ; {
		m, err := fd.Read(w.ctx, usermem.BytesIOSequence(data[n:]), vfs.ReadOptions{})
		switch n += int(m); {
		case err == io.EOF || err == nil && m == 0:
			return string(data[:n]), nil
		case err != nil:
			return "", err
		case n == maxHosts:
			return "", linuxerr.EFBIG
		case n == len(data):
			data = append(data, data...)
		}
	}
}

func (w *nameWriter) write(at *vfs.PathOperation, text string) error {
	fd, err := w.vfs.OpenAt(w.ctx, w.creds, at, &vfs.OpenOptions{Flags: linux.O_WRONLY | linux.O_TRUNC})
	if err != nil {
		return err
	}
	defer fd.DecRef(w.ctx)
	if n, err := fd.Write(w.ctx, usermem.BytesIOSequence([]byte(text)), vfs.WriteOptions{}); int(n) != len(text) {
		return errors.Join(err, io.ErrShortWrite)
	}
	return nil
}
