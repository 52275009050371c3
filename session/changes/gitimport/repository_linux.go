// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
)

// Repository is a git repository of the host, read and written without running git. No
// link is followed in any part of a path, and no other file system is entered.
type Repository struct {
	name    string
	git     *os.File // .git
	objects *os.File
	packs   []*pack
	named   changes.Named      // what the host's configurations have git run or read
	trees   map[ID][]treeEntry // that were read
	chain   int                // how deep it is in objects that are deltas of others
}

const (
	maxText = 16 << 20 // bytes of packed-refs and the like
	op      = "write to the repository"
)

func refuse(hint, format string, args ...any) error {
	return &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Problem: fmt.Sprintf(format, args...), Hint: hint}
}

// Open opens the repository of a workspace, which name names for people.
func Open(root *os.File, name string) (*Repository, error) {
	r := &Repository{name: name, trees: map[ID][]treeEntry{}, named: changes.NamedByGit(root, nil)}
	var st unix.Stat_t
	err := unix.Fstatat(int(root.Fd()), ".git", &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, refuse("run git init there first", "%s is no git repository", sandbox.Quoted(name))
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return nil, refuse("apply the set, and commit there yourself", "%s is a worktree or a submodule: its repository is elsewhere", sandbox.Quoted(name))
	}
	if r.git, err = openBelow(root, ".git", unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return nil, r.failed(err)
	}
	if err := r.open(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Repository) failed(err error) error {
	if e := (*sandbox.Error)(nil); errors.As(err, &e) {
		return err
	}
	return &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "the repository in " + sandbox.Quoted(r.name) + " cannot be used", Hint: "see what git fsck says of it", Cause: err}
}

func (r *Repository) open() (err error) {
	if err := r.checkShape(); err != nil {
		return err
	}
	if r.objects, err = openBelow(r.git, "objects", unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return r.failed(err)
	}
	if r.packs, err = openPacks(r.objects); err != nil {
		return r.failed(err)
	}
	return nil
}

// checkShape refuses a repository that keeps things in another way than this package
// reads them.
func (r *Repository) checkShape() error {
	for file, what := range map[string]string{"commondir": "shares another one's files", "objects/info/alternates": "has objects of another one"} {
		switch _, err := r.text(file); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return r.failed(err)
		default:
			return refuse("apply the set, and commit there yourself", "the repository in %s %s (%s)", sandbox.Quoted(r.name), what, file)
		}
	}
	config, err := r.config()
	if err != nil {
		return err
	}
	extensions, err := hostpath.GitExtensions([]byte(config))
	if err != nil {
		return r.failed(err)
	}
	for name, value := range extensions {
		switch name {
		case "noop", "preciousobjects", "worktreeconfig", "relativeworktrees":
		case "objectformat", "refstorage", "compatobjectformat":
			if value == "sha1" || value == "files" {
				continue
			}
			fallthrough
		default:
			return refuse("apply the set, and commit there yourself", "the repository in %s has the extension %s = %s", sandbox.Quoted(r.name), name, clip(value))
		}
	}
	return nil
}

// config is the repository's own configuration.
func (r *Repository) config() (string, error) {
	config, err := r.text("config")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", r.failed(err)
	}
	return config, nil
}

// Close ends it.
func (r *Repository) Close() error {
	for _, p := range r.packs {
		p.close()
	}
	if r.objects != nil {
		r.objects.Close()
	}
	return r.git.Close()
}

// openBelow opens what lies below a directory, through no link.
func openBelow(dir *os.File, name string, flags int) (*os.File, error) {
	flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{Flags: uint64(flags),
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// openFile opens a regular file to read it.
func openFile(dir *os.File, name string) (*os.File, error) {
	f, err := openBelow(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	if i, err := f.Stat(); err != nil || !i.Mode().IsRegular() {
		f.Close()
		return nil, &os.PathError{Op: "open", Path: name, Err: unix.EINVAL}
	}
	return f, nil
}

// text reads a file of the repository.
func (r *Repository) text(name string) (string, error) {
	f, err := openFile(r.git, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err == nil && len(b) > maxText {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxText)
	}
	return string(b), err
}

// Has says whether the repository has an object.
func (r *Repository) Has(id ID) (bool, error) {
	dir, name := id.path()
	var st unix.Stat_t
	d, err := openBelow(r.objects, dir, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		err = unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		d.Close()
	}
	if err == nil {
		return st.Mode&unix.S_IFMT == unix.S_IFREG, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, r.failed(err)
	}
	for _, p := range r.packs {
		if _, ok := p.find(id); ok {
			return true, nil
		}
	}
	return false, nil
}

// read reads an object of the repository that is no more than maximum bytes long.
func (r *Repository) read(id ID, maximum int64) (Kind, []byte, error) {
	dir, name := id.path()
	f, err := openFile(r.objects, path.Join(dir, name))
	if err == nil {
		l, err := openLoose(f)
		if err != nil {
			return "", nil, r.failed(err)
		}
		defer l.Close()
		b, err := l.whole(maximum)
		if err != nil {
			return "", nil, r.failed(err)
		}
		return l.kind, b, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", nil, r.failed(err)
	}
	for _, p := range r.packs {
		if at, ok := p.find(id); ok {
			kind, b, err := p.read(at, maximum, 0, func(base ID) (_ Kind, _ []byte, err error) {
				defer r.deeper(&err)()
				if err != nil {
					return "", nil, err
				}
				return r.read(base, maximum)
			})
			if err != nil {
				return "", nil, r.failed(fmt.Errorf("object %s: %w", id, err))
			}
			return kind, b, nil
		}
	}
	return "", nil, r.failed(fmt.Errorf("object %s is not there", id))
}

// commit and tree read an object of the host's that is one.
func (r *Repository) commit(id ID) (c commit, err error) {
	kind, b, err := r.read(id, maxCommit)
	if err == nil && kind != Commit {
		err = r.failed(fmt.Errorf("%s is no commit", id))
	}
	if err != nil {
		return c, err
	}
	head, _, _ := strings.Cut(string(b), "\n") // of the host's own commits the tree alone is wanted
	if c.tree, err = ParseID(strings.TrimPrefix(head, "tree ")); err != nil {
		return c, r.failed(err)
	}
	return c, nil
}

func (r *Repository) tree(id ID) ([]treeEntry, error) {
	if t, ok := r.trees[id]; ok {
		return t, nil
	}
	kind, b, err := r.read(id, maxTree)
	if err == nil && kind != Tree {
		err = r.failed(fmt.Errorf("%s is no tree", id))
	}
	if err != nil {
		return nil, err
	}
	t, err := parseTree(b, true)
	if err != nil {
		return nil, r.failed(err)
	}
	r.trees[id] = t
	return t, nil
}

// kind says what an object of the repository is.
func (r *Repository) kind(id ID) (Kind, error) {
	dir, name := id.path()
	f, err := openFile(r.objects, path.Join(dir, name))
	if err == nil {
		l, err := openLoose(f)
		if err != nil {
			return "", r.failed(err)
		}
		defer l.Close()
		return l.kind, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", r.failed(err)
	}
	for _, p := range r.packs {
		if at, ok := p.find(id); ok {
			kind, err := p.kind(at, 0, func(base ID) (_ Kind, err error) {
				defer r.deeper(&err)()
				if err != nil {
					return "", err
				}
				return r.kind(base)
			})
			if err != nil {
				return "", r.failed(err)
			}
			return kind, nil
		}
	}
	return "", r.failed(fmt.Errorf("object %s is not there", id))
}

// deeper bounds how many objects are deltas of each other.
func (r *Repository) deeper(err *error) (back func()) {
	if r.chain++; r.chain > maxChain {
		*err = errors.New("its deltas have no end")
	}
	return func() { r.chain-- }
}
