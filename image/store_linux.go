// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// Store keeps container images, in a directory of its own, mode 0700:
//
//	image-1-<hex>/  one image: root.erofs, image.json
//	tree-1-<hex>/   the same, unpacked, for levels that want a directory
//	more-1-<hex>/   the same as EROFS, with further mountpoints
//	step-1-<hex>/   what a step of a template's build has changed
//	names/          what references were resolved to, and templates are called
//	.building       who makes which of them just now, takes one away, or changes names
//
// Each is built under a temporary name and renamed, is never changed afterwards, and is
// held by a shared flock for as long as it is used. A tag is resolved once, when it is
// pulled: runs use what it meant then until it is pulled again. Layers are not kept.
//
// It may be used from many goroutines and processes.
type Store struct {
	dir    string
	kept   func(digest string) (bool, error)
	onGone func() // for tests: called when an image was removed
}

// format changes with what is made of an image; others are not used any more.
const format = "1-"

// OpenStore opens the store in dir, which is made when it does not exist.
func OpenStore(dir string) (*Store, error) {
	if _, err := openCache(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(dir, "names"), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, cacheError("open image store", err)
	}
	return &Store{dir: dir}, nil
}

// FindStore opens the store in dir for who wants to know what is there, and makes
// nothing: where dir does not exist, it has no images.
func FindStore(dir string) (*Store, error) {
	if err := private(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &Store{dir: dir}, nil
}

// KeepWhile has images stay of which kept says, at the moment of their removal, that a
// sandbox which does not run now, and holds nothing, goes on with them. What kept cannot tell
// stays. It is called before the store is used.
func (s *Store) KeepWhile(kept func(digest string) (bool, error)) { s.kept = kept }

func (s *Store) images() cache { return cache{dir: s.dir, prefix: "image-" + format} }

// keepMore is how many images with further mountpoints stay.
const keepMore = 4

func (s *Store) trees() cache { return cache{dir: s.dir, prefix: "tree-" + format} }
func (s *Store) more() cache  { return cache{dir: s.dir, prefix: "more-" + format, keep: keepMore} }

// Get finds an image that is here, and pulls it when it is not.
func (s *Store) Get(ctx context.Context, r reference.Ref, o PullOptions) (*Stored, error) {
	if o.Digest != "" {
		if info, err := s.info(o.Digest); !errors.Is(err, sandbox.ErrNotFound) {
			return info, err
		}
	}
	if r.Kind == reference.Template {
		return s.template(r, o.Owner)
	}
	if !r.Local() && o.Login == nil {
		digest, err := s.resolve(r, "")
		if err != nil {
			return nil, err
		}
		if digest != "" {
			if info, err := s.info(digest); !errors.Is(err, sandbox.ErrNotFound) {
				return info, err
			}
		}
	}
	return s.Pull(ctx, r, o)
}

// Hold finds an image as Get does, and keeps it from being removed until held is closed.
func (s *Store) Hold(ctx context.Context, r reference.Ref, o PullOptions) (info *Stored, held io.Closer, err error) {
	for range openTries {
		if info, err = s.Get(ctx, r, o); err != nil {
			return nil, nil, err
		}
		if f, err := s.images().open(keyOf(info.Digest)); f != nil || err != nil {
			return info, f, err
		}
	}
	return nil, nil, sandbox.Errorf(sandbox.ErrUnavailable, "image "+r.String(), "it was removed %d times while it was opened", openTries)
}

// pullTries is how often an image is begun whose registry hangs up.
const pullTries = 3

// Pull looks where the image is what its reference means now, and gets what is
// not here.
func (s *Store) Pull(ctx context.Context, r reference.Ref, o PullOptions) (*Stored, error) {
	if r.Kind == reference.Template {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "image "+r.Familiar(), "a template is built here, and pulled from nowhere")
	}
	img, done, err := find(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer done()
	var held *os.File
	for try := 1; ; try++ {
		held, err = s.images().tree(ctx, keyOf(img.Digest), func(ctx context.Context, dir string) error {
			return pack(ctx, img, dir, o.Progress)
		})
		if r.Local() || try == pullTries || ctx.Err() != nil || !errors.Is(err, fstree.ErrCutOff) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	defer held.Close()
	if !r.Local() && o.Login == nil {
		if err := s.remember(r, "", img.Digest); err != nil {
			return nil, err
		}
	}
	return s.info(img.Digest)
}

// find opens the source of an image.
func find(ctx context.Context, r reference.Ref, o PullOptions) (*Image, func(), error) {
	none := func() {}
	if !r.Local() {
		img, err := Pull(ctx, r, RegistryOptions{Insecure: o.Insecure, Public: o.Public, Login: o.Login})
		return img, none, err
	}
	// The very object that the caller judged, through its handle.
	path := r.Path
	if o.File != nil {
		path = "/proc/self/fd/" + strconv.Itoa(int(o.File.Fd()))
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, none, &sandbox.Error{Op: "image " + r.String(), Kind: sandbox.ErrNotFound, Problem: "there is no such file or directory", Hint: "check the path", Cause: err}
	}
	if st.IsDir() && r.Kind != reference.Archive {
		dir, err := os.OpenRoot(path)
		if err != nil {
			return nil, none, &sandbox.Error{Op: "image " + r.String(), Kind: sandbox.ErrUnavailable, Problem: "it cannot be opened", Hint: "check its permissions", Cause: err}
		}
		img, err := Layout(dir, r.Name)
		return img, func() { dir.Close() }, err
	}
	if !st.Mode().IsRegular() || r.Kind == reference.Layout {
		return nil, none, &sandbox.Error{Op: "image " + r.String(), Kind: sandbox.ErrInvalid, Problem: "it is not what its prefix says", Hint: "oci: takes a directory, docker-archive: a file"}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, none, &sandbox.Error{Op: "image " + r.String(), Kind: sandbox.ErrUnavailable, Problem: "it cannot be opened", Hint: "check its permissions", Cause: err}
	}
	img, err := Archive(f, r.Name)
	return img, func() { f.Close() }, err
}

// IsTree says whether a local reference names a plain directory: a tree that is
// the root itself, and no image.
func IsTree(r reference.Ref, dir *os.File) bool {
	if r.Kind != reference.Path {
		return false
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	err := unix.Fstatat(int(dir.Fd()), "oci-layout", &st, unix.AT_SYMLINK_NOFOLLOW)
	return errors.Is(err, unix.ENOENT)
}

// info reads what is known of an image; ErrNotFound when it is not here.
func (s *Store) info(digest string) (*Stored, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, s.images().prefix+keyOf(digest), infoName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, &sandbox.Error{Op: "image " + digest, Kind: sandbox.ErrNotFound, Problem: "it is not here", Hint: "caisson image pull gets it"}
	}
	if err != nil {
		return nil, cacheError("read image", err)
	}
	info := &Stored{}
	if err := json.Unmarshal(b, info); err != nil || info.Digest != digest {
		return nil, &sandbox.Error{Op: "image " + digest, Kind: sandbox.ErrUnavailable, Problem: "what is known of it is damaged", Hint: "caisson image rm " + digest + " and pull it again", Cause: err}
	}
	return info, nil
}

// Root makes an image the root of a sandbox. ErrNotFound says that it was
// removed meanwhile.
func (s *Store) Root(ctx context.Context, info *Stored, o RootOptions) (*Root, error) {
	held, err := s.images().open(keyOf(info.Digest))
	if err != nil {
		return nil, err
	}
	if held == nil {
		return nil, removed(info.Digest)
	}
	r := &Root{open: []*os.File{held}}
	for _, t := range o.Toolchains {
		if err := checkToolchain(t); err != nil {
			r.Close()
			return nil, err
		}
		r.Path = append(r.Path, binOf(t))
		r.mounts = append(r.mounts, sandbox.Mount{Source: t.File, Name: t.Name, Target: t.Real, Dir: true})
		o.Targets = append(slices.Clip(o.Targets), Target{t.Real, true})
	}
	r.Path = append(r.Path, info.searchPath()...)
	r.root.Image = &sandbox.Image{Digest: info.Digest}
	if err := s.fill(ctx, r, held, info, o); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// ReadFile reads a regular file of an image, of at most most bytes, that no link
// leads to. What is not there is os.ErrNotExist; so is all else that is no such
// file.
func (s *Store) ReadFile(info *Stored, path string, maximum int64) ([]byte, error) {
	held, err := s.images().open(keyOf(info.Digest))
	if err != nil {
		return nil, err
	}
	if held == nil {
		return nil, removed(info.Digest)
	}
	defer held.Close()
	f, err := openIn(held, erofsName)
	if err != nil {
		return nil, cacheError("open image", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, cacheError("read image", err)
	}
	n, err := fstree.FindEROFS(f, st.Size(), path)
	switch {
	case errors.Is(err, fstree.ErrDamaged):
		return nil, damagedImage(err)
	case err != nil || n.Kind != fstree.File || n.Size > maximum:
		return nil, os.ErrNotExist
	}
	return io.ReadAll(io.NewSectionReader(f, n.Offset, n.Size))
}

// Home opens what programs of a template find in their home. The caller closes it.
func (s *Store) Home(info *Stored) (*os.File, error) {
	held, err := s.images().open(keyOf(info.Digest))
	if err != nil {
		return nil, err
	}
	if held == nil {
		return nil, removed(info.Digest)
	}
	defer held.Close()
	f, err := openIn(held, homeName)
	if err != nil {
		return nil, cacheError("open template", err)
	}
	return f, nil
}

// fill opens the tree in the form that the level takes.
func (s *Store) fill(ctx context.Context, r *Root, held *os.File, info *Stored, o RootOptions) error {
	f, err := openIn(held, erofsName)
	if err != nil {
		return cacheError("open image", err)
	}
	missing, err := missingTargets(f, o.Targets)
	if err != nil {
		f.Close()
		return err
	}
	if o.EROFS {
		if len(missing) == 0 {
			r.open = append(r.open, f)
			r.root.Image.EROFS = f
			return nil
		}
		defer f.Close()
		return s.withMore(ctx, r, f, info, missing)
	}
	defer f.Close()
	dir, err := s.trees().tree(ctx, keyOf(info.Digest), func(ctx context.Context, dir string) error { return unpack(ctx, f, dir) })
	if err != nil {
		return err
	}
	r.open = append(r.open, dir)
	if r.root.Dir, err = openIn(dir, "root"); err != nil {
		return cacheError("open image", err)
	}
	r.open = append(r.open, r.root.Dir)
	return nil
}

// openIn opens something of a directory of the store for reading.
func openIn(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), nil
}

// withMore gives an image further mountpoints: a copy, made once and kept for a
// while, of which only the tree is written anew.
func (s *Store) withMore(ctx context.Context, r *Root, f *os.File, info *Stored, missing []Target) error {
	key := keyOf(info.Digest) + "-" + targetsHash(missing)
	dir, err := s.more().tree(ctx, key, func(ctx context.Context, dir string) error { return addTargets(f, dir, info.Digest, missing) })
	if err != nil {
		return err
	}
	r.open = append(r.open, dir)
	if r.root.Image.EROFS, err = openIn(dir, erofsName); err != nil {
		return cacheError("open image", err)
	}
	r.open = append(r.open, r.root.Image.EROFS)
	return nil
}

// damagedImage explains an image that cannot be read.
func damagedImage(err error) error {
	if !errors.Is(err, fstree.ErrDamaged) {
		return cacheError("read image", err)
	}
	return &sandbox.Error{Op: "read image", Kind: sandbox.ErrUnavailable, Problem: "it is damaged", Hint: "caisson image rm it, and pull it again", Cause: err}
}
