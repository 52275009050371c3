// SPDX-License-Identifier: Apache-2.0

package process

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/landlock"
	"github.com/caisson-run/caisson/sandbox"
)

// unexecutable is what a mount gets where only listed programs may be executed,
// and none of them lies in it: not even a loader that may be executed maps a file
// of it as code.
func (w *rootfs) unexecutable(m sandbox.Mount) uint64 {
	x := w.spec.Executables
	if x == nil {
		return 0
	}
	for _, name := range slices.Concat(x.Files, x.Trees) {
		if sandbox.Within(name, m.Target) {
			return 0
		}
	}
	return unix.MOUNT_ATTR_NOEXEC
}

// restrictPrograms adds what may be executed to the ruleset, and what may be read:
// everything but the other files of the closed directories.
func (p *plan) restrictPrograms(b *script) {
	x := p.spec.Executables
	b.doing("write down what may be read")
	b.allow(p.rules, landlock.List, "/", true)
	for _, e := range p.readable {
		b.allow(p.rules, landlock.Inspect, e.Target, e.Dir)
	}
	b.doing("write down what may be executed")
	for _, name := range x.Files {
		b.allow(p.rules, landlock.Read, name, false)
	}
	for _, name := range x.Trees {
		b.allow(p.rules, landlock.Read, name, true)
	}
}

// maxListed bounds the rules that readable makes.
const maxListed = 4096

// readable are the files and directories that together have all of the root but
// the closed directories. Links need no rule: what they lead to has one.
func (w *rootfs) readable(closed []string) ([]sandbox.Mask, error) {
	var out []sandbox.Mask
	var visit func(dir string) error
	visit = func(dir string) error {
		entries, err := w.list(dir)
		if err != nil {
			return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "its directory " + dir + " cannot be listed", Cause: err}
		}
		for _, e := range entries {
			at := path.Join(dir, e.Name())
			above := slices.ContainsFunc(closed, func(c string) bool { return c != at && sandbox.Within(c, at) })
			switch {
			case e.Type()&fs.ModeSymlink != 0, slices.Contains(closed, at), at == "/proc", at == "/dev":
			case above:
				if err := visit(at); err != nil {
					return err
				}
			default:
				out = append(out, sandbox.Mask{Target: at, Dir: e.IsDir()})
			}
		}
		return nil
	}
	if err := visit("/"); err != nil {
		return nil, err
	}
	for _, s := range w.sources[1:] {
		m := s.mount
		if !slices.ContainsFunc(closed, func(c string) bool { return sandbox.Within(c, m.Target) }) {
			out = append(out, sandbox.Mask{Target: m.Target, Dir: m.Dir})
		}
	}
	if len(out) > maxListed {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "start sandbox", "its root has too many entries to tell programs from other files")
	}
	return out, nil
}

// list is what a directory will have, as far as it comes from the root or a mount.
func (w *rootfs) list(dir string) ([]os.DirEntry, error) {
	src, scratch := w.owner(dir, len(w.sources))
	if scratch {
		return nil, nil
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(dir, src.mount.Target), "/")
	if rel == "" {
		rel = "."
	}
	fd, err := unix.Openat2(int(src.mount.Source.Fd()), rel, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == unix.ENOENT { // a mountpoint that is made later
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	return f.ReadDir(-1)
}

// memoryFilter refuses files in memory, from which programs could be executed:
// Landlock has no say about what is on no file system.
func memoryFilter() []unix.SockFilter {
	create := uint32(unix.SYS_MEMFD_CREATE)
	const load, equal, give = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	arch := uint32(unix.AUDIT_ARCH_X86_64)
	if runtime.GOARCH == "arm64" {
		arch = unix.AUDIT_ARCH_AARCH64
	}
	return []unix.SockFilter{
		{Code: load, K: 4}, // seccomp_data.arch
		{Code: equal, K: arch, Jf: 3},
		{Code: load, K: 0}, // seccomp_data.nr
		{Code: equal, K: create, Jf: 1},
		{Code: give, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)},
		{Code: give, K: unix.SECCOMP_RET_ALLOW}, // the other filter has its say
	}
}
