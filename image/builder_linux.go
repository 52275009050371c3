// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// homeName is where a template's /home/user is once more, as a directory: it is what a
// private home begins with.
const homeName = "home"

// Builder makes an image layer by layer, and can be run on in between. All of it is one
// file, to which each layer adds its contents: a step costs what it changes. It is for one
// goroutine. The caller closes it.
type Builder struct {
	store *Store
	dir   *os.File // of a kind that a sweep takes when its owner has died
	file  *os.File

	tree     *fstree.Unpacker
	contents *fstree.Contents
	info     *Stored // of what is written
	written  bool
}

// Build begins with an image that is here, or with nothing where base is nil.
func (s *Store) Build(base *Stored) (_ *Builder, err error) {
	dir, err := s.images().temp()
	if err != nil {
		return nil, err
	}
	b := &Builder{store: s, dir: dir, info: &Stored{}}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if b.file, err = os.OpenFile(filepath.Join(dir.Name(), erofsName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, cacheError("build image", err)
	}
	if base == nil {
		b.contents = fstree.NewContents(b.file)
		b.tree = fstree.NewUnpacker(b.sink(), fstree.Bounds{})
		return b, nil
	}
	return b, b.copy(base)
}

// copy takes over all that an image has.
func (b *Builder) copy(base *Stored) error {
	held, err := b.store.images().open(keyOf(base.Digest))
	if err != nil {
		return err
	}
	if held == nil {
		return removed(base.Digest)
	}
	defer held.Close()
	from, err := openIn(held, erofsName)
	if err != nil {
		return cacheError("open image", err)
	}
	defer from.Close()
	root, err := readTree(from)
	if err != nil {
		return err
	}
	end, err := fstree.EROFSDataEnd(from)
	if err != nil {
		return damagedImage(err)
	}
	if err := copyRange(b.file, from, end); err != nil {
		return err
	}
	b.info.Config = base.Config
	b.contents = fstree.MoreContents(io.NewOffsetWriter(b.file, end), end)
	b.tree = fstree.NewUnpackerOn(root, b.sink(), fstree.Bounds{})
	return nil
}

func removed(digest string) error {
	return &sandbox.Error{Op: "image " + digest, Kind: sandbox.ErrNotFound, Problem: "it was removed", Hint: "try again"}
}

// sink is where contents go now.
func (b *Builder) sink() fstree.Sink { return builderSink{b} }

type builderSink struct{ b *Builder }

func (s builderSink) Begin() (int64, error)       { return s.b.contents.Begin() }
func (s builderSink) Write(p []byte) (int, error) { return s.b.contents.Write(p) }

// Put applies a tar archive as it is: what it holds is added.
func (b *Builder) Put(ctx context.Context, archive io.Reader) error {
	b.written = false
	return diskError(b.tree.ApplyChanges(ctx, archive))
}

// Add puts files in, as [fstree.Unpacker.Add] does.
func (b *Builder) Add(ctx context.Context, archive io.Reader) error {
	b.written = false
	return diskError(b.tree.Add(ctx, archive))
}

// Tree is what there is now. It is not to be changed.
func (b *Builder) Tree() *fstree.Node { return b.tree.Root }

// Read reads the contents of a file of the tree.
func (b *Builder) Read(n *fstree.Node) (io.Reader, error) {
	if _, err := b.contents.End(); err != nil {
		return nil, cacheError("build image", err)
	}
	return io.NewSectionReader(b.file, n.Offset, n.Size), nil
}

// write completes the file, so that it can be mounted. More contents may follow: they
// take the place of what is written here.
func (b *Builder) write(c Config, digest string) error {
	if b.written && digest == b.info.Digest {
		b.info.Config = c
		return nil
	}
	info := &Stored{Digest: digest, Config: c, Built: true, Left: b.tree.Left, Made: time.Now().UTC().Truncate(time.Second)}
	d := &dresser{root: b.tree.Root, out: info,
		read:  b.bytes,
		write: func(text string) (*fstree.Node, error) { return addFile(b.contents, text) },
	}
	if err := d.dress(c); err != nil {
		return diskError(err)
	}
	end, err := b.contents.End()
	if err != nil {
		return cacheError("build image", err)
	}
	size, err := fstree.WriteEROFS(b.file, b.tree.Root, end, uuidOf(digest))
	if err == nil {
		err = b.file.Truncate(size)
	}
	if err != nil {
		return cacheError("build image", err)
	}
	b.contents = fstree.MoreContents(io.NewOffsetWriter(b.file, end), end)
	info.Files, info.Size = b.tree.Root.Count()
	b.info, b.written = info, true
	return nil
}

// Root is what there is now as the root of a sandbox on a level that takes EROFS, with
// what is known of it. Nothing may be put in while the sandbox lives.
func (b *Builder) Root(c Config, o RootOptions) (*Root, *Stored, error) {
	if err := b.write(c, ""); err != nil {
		return nil, nil, err
	}
	for _, t := range o.Targets {
		if _, err := b.tree.Root.Lookup(t.Path); errors.Is(err, fstree.ErrNotFound) {
			if err := addTarget(b.tree.Root, t); err != nil {
				return nil, nil, err
			}
			b.written = false
		}
	}
	if err := b.write(c, ""); err != nil {
		return nil, nil, err
	}
	f, err := openIn(b.dir, erofsName)
	if err != nil {
		return nil, nil, cacheError("open image", err)
	}
	r := &Root{open: []*os.File{f}, Path: b.info.searchPath()}
	r.root.Image = &sandbox.Image{EROFS: f}
	return r, b.info, nil
}

// Account is whom USER names in the tree: a name or number, with a group after a colon or
// not. Empty is root. ErrInvalid when there is no such user.
func (b *Builder) Account(name string) (sandbox.User, error) {
	if err := b.write(b.info.Config, ""); err != nil { // it may add the accounts that all images have
		return sandbox.User{}, err
	}
	d := &dresser{root: b.tree.Root, read: b.bytes}
	passwd, err := d.text("/etc/passwd")
	if err != nil {
		return sandbox.User{}, err
	}
	group, err := d.text("/etc/group")
	if err != nil {
		return sandbox.User{}, err
	}
	return stepUser(cmp.Or(name, "root"), passwd, group)
}

// ReadFile reads a regular file of the tree, of at most maximum bytes, that no link leads
// to. What is not there is os.ErrNotExist; so is all else that is no such file.
func (b *Builder) ReadFile(path string, maximum int64) ([]byte, error) {
	n, err := b.tree.Root.Lookup(path)
	if err != nil || n.Kind != fstree.File || n.Size > maximum {
		return nil, os.ErrNotExist
	}
	return b.bytes(n)
}

// bytes is all of a small file of the tree.
func (b *Builder) bytes(n *fstree.Node) ([]byte, error) {
	r, err := b.Read(n)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// Finish keeps the image under a digest, which is that of all that it was made from. It
// is there once, also where another process makes it.
func (b *Builder) Finish(ctx context.Context, digest string, c Config) (*Stored, error) {
	if err := b.write(c, digest); err != nil {
		return nil, err
	}
	held, err := b.store.images().tree(ctx, keyOf(digest), func(ctx context.Context, dir string) error {
		if err := b.keep(ctx, dir); err != nil {
			return err
		}
		return diskError(b.info.write(dir))
	})
	if err != nil {
		return nil, err
	}
	defer held.Close()
	return b.store.info(digest)
}

// keep moves the file to where it stays, and gives back what no file of the tree has.
func (b *Builder) keep(ctx context.Context, dir string) error {
	end, err := fstree.EROFSDataEnd(b.file)
	if err != nil {
		return damagedImage(err)
	}
	if err := punch(b.file, b.tree.Root, end); err != nil {
		return cacheError("build image", err)
	}
	if home, err := b.tree.Root.Lookup(sandbox.DefaultUser().Home); err == nil && home.Kind == fstree.Dir {
		if err := unpackTree(ctx, b.file, home, filepath.Join(dir, homeName)); err != nil {
			return err
		}
	}
	if err := errors.Join(b.file.Chmod(0o400), b.file.Sync()); err != nil {
		return cacheError("build image", err)
	}
	return os.Rename(filepath.Join(b.dir.Name(), erofsName), filepath.Join(dir, erofsName))
}

// Close lets go of what was not kept.
func (b *Builder) Close() error {
	var err error
	if b.file != nil {
		err = b.file.Close()
	}
	return errors.Join(err, os.RemoveAll(b.dir.Name()), b.dir.Close())
}
