// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// bootID goes into every digest: a tree that was written shortly before a power
// failure may have lost its contents but not its name, and is never used again.
var bootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(b)
})

// Host returns the host's toolchain as a root filesystem. The caller closes it.
//
// It returns ErrInvalid for options that cannot be meant (a target below /usr
// that is not there, a user name with a colon), ErrUnsupported for a host whose
// /usr is laid out in an unknown way, ErrUnavailable for a full disk or a cache
// that cannot be used. It may be called from many goroutines and processes.
func Host(ctx context.Context, opts HostOptions) (*Root, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err := openCache(o.Cache)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	notes := c.notesFile(o.root)
	if slices.ContainsFunc(o.Targets, func(t Target) bool { return within(t.Path, "/etc") }) {
		notes = "" // what there is must be known
	}
	h, err := surveyHost(o.root, sum, notes)
	if err != nil {
		return nil, err
	}
	s := &skeleton{host: h, opts: &o, shell: h.shell()}
	if o.Programs {
		s.programs = h.programs()
	}
	r, err := s.root(ctx, c, sum)
	if err != nil {
		h.close()
		return nil, err
	}
	unix.Close(h.root)
	r.open = append(r.open, h.files...)
	return r, nil
}

// root puts the tree and the binds together.
func (s *skeleton) root(ctx context.Context, c cache, sum hash.Hash) (*Root, error) {
	r := &Root{}
	binds := slices.Clone(s.host.binds)
	for _, t := range s.opts.Toolchains {
		if err := checkToolchain(t); err != nil {
			return nil, err
		}
		r.Path = append(r.Path, binOf(t))
		m := sandbox.Mount{Source: t.File, Name: t.Name, Target: t.Real, Dir: true}
		switch {
		case slices.ContainsFunc(binds, func(b sandbox.Mount) bool { return within(t.Real, b.Target) }):
			// shown already
		case slices.ContainsFunc(s.opts.Targets, func(u Target) bool { return within(t.Real, u.Path) }):
			r.mounts = append(r.mounts, m)
		default:
			binds = append(binds, m)
			s.extra = append(s.extra, Target{Path: t.Real, Dir: true})
			s.seen = append(s.seen, t.Real)
		}
	}
	r.Path = append(r.Path, usualPath...)

	extra, err := s.host.mountpoints(s.opts, binds)
	if err != nil {
		return nil, err
	}
	s.extra = append(s.extra, extra...)
	etc := s.etcDigest(sum)
	write := func(ctx context.Context, dir string) error { return s.write(ctx, c, etc, dir) }
	dir, err := c.tree(ctx, s.digest(sum), write)
	if err != nil {
		return nil, err
	}
	r.open = append(r.open, dir)
	r.root = sandbox.Root{Dir: dir, Binds: binds}
	return r, nil
}

// etcDigest mixes in what decides the copy of /etc besides the host's files:
// our own table, for another caisson with another table has another copy.
func (s *skeleton) etcDigest(sum hash.Hash) string {
	fmt.Fprintf(sum, "boot %q seen %q\n", bootID(), s.seen)
	for _, e := range etcTable {
		fmt.Fprintf(sum, "etc %q\n", e.path)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// digest mixes in what decides the rest of the tree.
func (s *skeleton) digest(sum hash.Hash) string {
	fmt.Fprintf(sum, "home %q layout %q vacant %q links %q\n", s.opts.User.Home, layout, vacant, layoutLinks)
	fmt.Fprintf(sum, "files %q\n", s.opts.files(s.shell))
	if s.opts.Programs {
		fmt.Fprintf(sum, "programs %q\n", s.programs)
	}
	for _, t := range s.extra {
		fmt.Fprintf(sum, "target %q %t\n", t.Path, t.Dir)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// shell is the shell of the accounts inside: bash where the host has it.
func (h *hostTree) shell() string {
	for _, p := range []string{"bin/bash", "usr/bin/bash"} {
		if h.executes(p) {
			return "/" + p
		}
	}
	return "/bin/sh"
}

// programs are links in sandbox.ProgramDir, and where they lead.
func (h *hostTree) programs() map[string]string {
	links := map[string]string{}
	if h.executes("usr/bin/python3") && !h.executes("usr/bin/python") && !h.executes("usr/local/bin/python") {
		links["python"] = "/usr/bin/python3"
	}
	return links
}

// executes says whether p, below the host's root, is a program.
func (h *hostTree) executes(p string) bool {
	fd, err := unix.Openat2(h.root, p, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0
}

// checkToolchain refuses what cannot be shown at its own path.
func checkToolchain(t *hostpath.Source) error {
	op := "toolchain " + t.Name
	if !t.Dir {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "it is a file", Hint: "name the directory that holds its bin, for example /opt/go"}
	}
	if err := checkInside(op, "toolchain's path", t.Real); err != nil {
		return err
	}
	if strings.Contains(t.Real, ":") {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "its path holds a colon, which PATH cannot", Hint: "rename it or copy it elsewhere"}
	}
	return reserved(t.Real)
}

// binOf is where the programs of a toolchain are: its bin, or itself.
func binOf(t *hostpath.Source) string {
	var st unix.Stat_t
	if err := unix.Fstatat(int(t.File.Fd()), "bin", &st, 0); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return path.Join(t.Real, "bin")
	}
	return t.Real
}
