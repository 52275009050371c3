// SPDX-License-Identifier: Apache-2.0

package idmap

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/caisson-run/caisson/sandbox"
)

// Map translates owners: Count ids from Host on, as they lie on disk, appear
// as those from Shown on. Count 0 is 1.
type Map struct{ Host, Shown, Count uint32 }

func (m Map) count() int { return int(max(m.Count, 1)) }

func (m Map) check(what string) error {
	const last = 1<<32 - 2 // (uid_t)-1 is no user
	if int64(m.Host)+int64(m.count()) > last+1 || int64(m.Shown)+int64(m.count()) > last+1 {
		return sandbox.Errorf(sandbox.ErrInvalid, "map owners", "%s map %d:%d:%d runs past the last id", what, m.Host, m.Shown, m.count())
	}
	return nil
}

// mappings turns maps into what clone wants.
func mappings(maps []Map, what string) ([]syscall.SysProcIDMap, error) {
	var m []syscall.SysProcIDMap
	for _, x := range maps {
		if err := x.check(what); err != nil {
			return nil, err
		}
		m = append(m, syscall.SysProcIDMap{ContainerID: int(x.Host), HostID: int(x.Shown), Size: x.count()})
	}
	return m, nil
}

// Namespace holds a translation of owners, for any number of mounts. It is a
// user namespace that no process lives in.
type Namespace struct{ file *os.File }

// New makes a translation; the caller closes it, when its mounts are made at
// the latest. It needs root (ErrUnsupported otherwise) and costs one fork, 1
// to 2 ms, more in a process that holds much memory.
//
// A user namespace can be had only through a process that enters it. The one
// here never runs an instruction: it traces itself, so that the kernel stops
// it in the very execve, and it is killed as soon as its namespace is held by
// a descriptor. That needs no helper binary and no code in a forked Go runtime.
func New(uids, gids []Map) (*Namespace, error) {
	uidMaps, err := mappings(uids, "uid")
	if err != nil {
		return nil, err
	}
	gidMaps, err := mappings(gids, "gid")
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, &sandbox.Error{Op: "map owners", Kind: sandbox.ErrUnsupported, Problem: "only root may make id-mapped mounts",
			Hint: "an ordinary user's sandbox runs under the user's own uid and needs none"}
	}
	// The tracer is the thread, and so is the parent whose death kills.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess("/proc/self/exe", []string{"caisson-idmap"}, &os.ProcAttr{
		Env: []string{},
		Sys: &syscall.SysProcAttr{
			Cloneflags:                 syscall.CLONE_NEWUSER,
			UidMappings:                uidMaps,
			GidMappings:                gidMaps,
			GidMappingsEnableSetgroups: true, // not to be refused; it is never called
			Ptrace:                     true,
			Pdeathsig:                  syscall.SIGKILL,
		},
	})
	if err != nil {
		return nil, &sandbox.Error{Op: "map owners", Kind: sandbox.ErrUnsupported, Problem: "no user namespace can be made", Cause: err,
			Hint: "see caisson doctor: user.max_user_namespaces, a seccomp profile or kernel.yama.ptrace_scope=3 may forbid it"}
	}
	defer func() { _ = p.Kill(); _, _ = p.Wait() }()
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	if err != nil {
		return nil, &sandbox.Error{Op: "map owners", Kind: sandbox.ErrUnavailable, Problem: "the new user namespace cannot be held", Cause: err}
	}
	return &Namespace{file: file}, nil
}

// Close lets the namespace go. Mounts made from it stay as they are.
func (n *Namespace) Close() error { return n.file.Close() }
