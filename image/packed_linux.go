// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// A packed root is a root of this host's files in one file, for a level that can show no
// directory: what [Host] shows, or another directory. It is made once, kept by a digest of
// the names, sizes and times of all that it has, and made anew when one of these has changed.
// What not everybody may read on the host is in it by its name alone.

// PackHost is [Host] in one file, with what is mounted below on a disk. There are no
// mountpoints in it beyond the usual ones.
func PackHost(ctx context.Context, host HostOptions, o PackOptions) (*Root, error) {
	host.Targets, host.Toolchains = nil, nil
	host.Programs = true // all share it, those without an agent, too
	root, err := Host(ctx, host)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return packed(ctx, packing{from: FromHost, dir: root.root.Dir, made: true, binds: root.root.Binds}, o)
}

// PackDir is [Dir] in one file. Mountpoints need not exist in it.
func PackDir(ctx context.Context, src *hostpath.Source, o PackOptions) (*Root, error) {
	d := dirRoot{src: src}
	if !src.Dir {
		return nil, d.bad(sandbox.ErrInvalid, "it is a file", "name a directory that holds usr, bin, lib and so on")
	}
	if err := d.checkLinks(); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(src.File.Fd()), &st); err != nil || !listed(&st) {
		return nil, d.bad(sandbox.ErrUnsupported, "a virtual machine is shown what everybody may read, and not everybody may look into it", "chmod o+rx "+src.Real)
	}
	return packed(ctx, packing{from: src.Real, dir: src.File}, o)
}

// packing is what is packed: a directory with others in it.
type packing struct {
	from  string // as in a Pack
	dir   *os.File
	made  bool // by us: its times say nothing
	binds []sandbox.Mount

	onCopy func(name string)               // as in a packer
	free   func(dir string) (int64, error) // for tests: in place of freeIn
	max    amount                          // for tests: in place of maxPack
}

// packed finds what is packed, or packs it.
func packed(ctx context.Context, p packing, o PackOptions) (*Root, error) {
	c, err := openCache(o.Cache)
	if err != nil {
		return nil, err
	}
	c = packsIn(c.dir)
	l, err := p.look(ctx, &packer{})
	if err != nil {
		return nil, err
	}
	r := &Root{Notes: l.notes(p.from)}
	if err := r.toolchains(o.Toolchains, p.binds, l); err != nil {
		return nil, err
	}
	key := keyOf(l.digest)
	if _, err := os.Lstat(filepath.Join(c.dir, c.prefix+key)); err != nil && o.Progress != nil {
		o.Progress(0, l.total.size()) // it is made, here or by another caisson
	}
	held, err := c.tree(ctx, key, func(ctx context.Context, at string) error { return p.write(ctx, c, l, at, o.Progress) })
	if err != nil {
		return nil, err
	}
	r.open = append(r.open, held)
	f, err := openIn(held, erofsName)
	if err != nil {
		r.Close()
		return nil, cacheError("open packed root", err)
	}
	r.open = append(r.open, f)
	r.root.Image = &sandbox.Image{Digest: l.digest, EROFS: f}
	return r, nil
}

// toolchains adds what is mounted, and where programs are. What is packed already is not
// mounted. The level copies the others, of which it gets what everybody may read: that is
// what the process level shows of them. One of which that is nothing is refused.
func (r *Root) toolchains(chains []*hostpath.Source, binds []sandbox.Mount, l *looked) error {
	for _, t := range chains {
		if err := checkToolchain(t); err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(t.File.Fd()), &st); err != nil || !listed(&st) {
			return &sandbox.Error{Op: "toolchain " + t.Name, Kind: sandbox.ErrUnsupported, Cause: err,
				Problem: "a virtual machine gets of a toolchain what everybody may read, and not everybody may look into it", Hint: "chmod o+rx " + t.Real + ", or mount it: --mount " + t.Real + ":" + t.Real + ":ro"}
		}
		r.Path = append(r.Path, binOf(t))
		below := slices.ContainsFunc(binds, func(b sandbox.Mount) bool { return within(t.Real, b.Target) })
		if !below || !l.names[directoryID{placeOf(int(t.File.Fd()), &st), st.Ino}] {
			r.mounts = append(r.mounts, sandbox.Mount{Source: t.File, Name: t.Name, Target: t.Real, Dir: true, Public: true})
		}
	}
	r.Path = append(r.Path, usualPath...)
	return nil
}

// mountOf is the number of the mount of a name in a directory, or of the directory itself
// (""); 0 where the kernel does not tell (before 5.8).
func mountOf(dir int, name string) uint64 {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var st unix.Statx_t
	if unix.Statx(dir, name, flags, unix.STATX_MNT_ID, &st) != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return 0
	}
	return st.Mnt_id
}

func changedMeanwhile(cause error) error {
	return &sandbox.Error{Op: "pack root filesystem", Kind: sandbox.ErrUnavailable, Problem: "its files are being changed", Hint: "try again when that has ended", Cause: cause}
}

// sourceError leaves the errors of this program alone and explains those of what is packed.
func sourceError(err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return err
	}
	return &sandbox.Error{Op: "pack root filesystem", Kind: sandbox.ErrUnavailable, Problem: "what is to be packed cannot be read", Hint: "check the file that is named", Cause: err}
}

// looked is what a look has found.
type looked struct {
	*packer
	root   *fstree.Node
	digest string // of all that it has
}

// look looks through all of it. Contents are only written where the packer has somewhere to
// write them.
func (p packing) look(ctx context.Context, l *packer) (*looked, error) {
	l.ctx, l.sum, l.made, l.max, l.onCopy, l.names = ctx, sha256.New(), p.made, p.max, p.onCopy, map[directoryID]bool{}
	if l.max == (amount{}) {
		l.max = maxPack
	}
	if l.began.IsZero() {
		l.began = time.Now()
	}
	root, err := l.top(p.dir, "/")
	l.made, l.below = false, p.made
	for _, b := range p.binds {
		if err != nil {
			break
		}
		var n *fstree.Node
		fmt.Fprintf(l.sum, "at %q\n", b.Target)
		if n, err = l.top(b.Source, b.Target); err == nil {
			err = put(root, b.Target, n)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case l.over != nil:
		return nil, l.over // no name that it was found at says anything
	case err != nil:
		return nil, sourceError(err)
	}
	return &looked{l, root, fstree.Digest(l.sum)}, nil
}

// maxLeft is how many places are named that are left out.
const maxLeft = 8

// notes are sentences for people about what does not show.
func (l *looked) notes(from string) (out []string) {
	for i, at := range l.left {
		if i == maxLeft {
			out = append(out, fmt.Sprintf("nor is what is mounted in %d more places", len(l.left)-i))
			break
		}
		out = append(out, "what is mounted on "+sandbox.Quoted(at)+" is not shown in a virtual machine")
	}
	if from != FromHost && l.empty > 0 {
		out = append(out, fmt.Sprintf("%d files and directories of %s, which not everybody may read, are empty in a virtual machine", l.empty, sandbox.Quoted(from)))
	}
	return out
}

// put puts n at a path whose directory the tree has.
func put(root *fstree.Node, target string, n *fstree.Node) error {
	parent, err := root.Lookup(filepath.Dir(target))
	if err != nil || parent.Kind != fstree.Dir {
		return fmt.Errorf("nothing can be put at %s: %w", target, errors.Join(err, unix.ENOTDIR))
	}
	parent.Children[filepath.Base(target)] = n
	return nil
}
