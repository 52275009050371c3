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

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// A packed root is a root of this host's files in one file, for a level that can show no
// directory: what [Host] shows, or another directory. It is made once, kept by a digest of
// the names, sizes and times of all that it has, and made anew when one of these has changed.
// What not everybody may read on the host is in it by its name alone.

const (
	packPrefix = "pack-" + format
	keepPacks  = 4
	packsSize  = 32 << 30 // bytes, without the one that is made
)

// PackHost is [Host] in one file. There are no mountpoints in it beyond the usual ones.
func PackHost(ctx context.Context, host HostOptions, o PackOptions) (*Root, error) {
	host.Targets, host.Toolchains = nil, nil
	root, err := Host(ctx, host)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return packed(ctx, packing{dir: root.root.Dir, made: true, binds: root.root.Binds}, o)
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
	return packed(ctx, packing{dir: src.File}, o)
}

// packing is what is packed: a directory with others in it.
type packing struct {
	dir   *os.File
	made  bool // by us: its times say nothing
	binds []sandbox.Mount

	onCopy func(name string) // as in a packer
}

// packed finds what is packed, or packs it.
func packed(ctx context.Context, p packing, o PackOptions) (*Root, error) {
	r := &Root{}
	if err := r.toolchains(o.Toolchains, p.binds); err != nil {
		return nil, err
	}
	c, err := openCache(o.Cache)
	if err != nil {
		return nil, err
	}
	c.prefix, c.keep, c.size, c.weighs = packPrefix, keepPacks, packsSize, erofsName
	_, digest, err := p.look(ctx, nil)
	if err != nil {
		return nil, err
	}
	held, err := c.tree(ctx, keyOf(digest), func(ctx context.Context, at string) error { return p.write(ctx, digest, at) })
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
	r.root.Image = &sandbox.Image{Digest: digest, EROFS: f}
	return r, nil
}

// toolchains adds what is mounted, and where programs are. What is packed already is not
// mounted. The level copies the others, of which it gets what everybody may read: that is
// what the process level shows of them.
func (r *Root) toolchains(chains []*hostpath.Source, binds []sandbox.Mount) error {
	for _, t := range chains {
		if err := checkToolchain(t); err != nil {
			return err
		}
		r.Path = append(r.Path, binOf(t))
		if !slices.ContainsFunc(binds, func(b sandbox.Mount) bool { return within(t.Real, b.Target) && sameMount(t.File, b.Source) }) {
			r.mounts = append(r.mounts, sandbox.Mount{Source: t.File, Name: t.Name, Target: t.Real, Dir: true, Public: true})
		}
	}
	r.Path = append(r.Path, usualPath...)
	return nil
}

// sameMount says whether two files lie in one mounted file system: what is mounted below a
// directory is not packed with it.
func sameMount(a, b *os.File) bool {
	var sa, sb unix.Stat_t
	if unix.Fstat(int(a.Fd()), &sa) != nil || unix.Fstat(int(b.Fd()), &sb) != nil || sa.Dev != sb.Dev {
		return false
	}
	return mountOf(int(a.Fd()), "") == mountOf(int(b.Fd()), "")
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

// write writes the packed root to a new directory, unless it is another one by then.
func (p packing) write(ctx context.Context, digest, at string) error {
	f, err := os.OpenFile(filepath.Join(at, erofsName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	contents := fstree.NewContents(f)
	root, now, err := p.look(ctx, contents)
	if err != nil {
		return diskError(err)
	}
	if now != digest {
		return changedMeanwhile(nil)
	}
	return diskError(finish(f, root, contents, digest))
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

// look is the tree, and the digest of all that it has. Contents are only written where there
// is somewhere to write them.
func (p packing) look(ctx context.Context, contents *fstree.Contents) (*fstree.Node, string, error) {
	l := &packer{ctx: ctx, sum: sha256.New(), contents: contents, made: p.made, onCopy: p.onCopy}
	root, err := l.top(p.dir)
	l.made = false
	for _, b := range p.binds {
		if err != nil {
			break
		}
		var n *fstree.Node
		fmt.Fprintf(l.sum, "at %q\n", b.Target)
		if n, err = l.top(b.Source); err == nil {
			err = put(root, b.Target, n)
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, "", err
		}
		return nil, "", sourceError(err)
	}
	return root, fstree.Digest(l.sum), nil
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
