// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// print is the digest of something and all that is in it, by what the file system
// says of it: no file is read.
type print struct {
	hash.Hash
	entries int
}

func newPrint() *print { return &print{Hash: sha256.New()} }

func (p *print) sum() string { return hex.EncodeToString(p.Sum(nil)) }

// add adds what is called name in dir. The error says that it cannot be compared.
func (p *print) add(dir int, name, rel string, depth int) error {
	if p.entries++; p.entries > maxCompared || depth > maxDepth {
		return errTooBig
	}
	fd, err := openPath(dir, path.Dir(name), beneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	base := path.Base(name)
	var st unix.Stat_t
	if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	fmt.Fprintf(p, "%q %d %d %o %d %d %v %v\n", rel, st.Dev, st.Ino, st.Mode, st.Nlink, st.Size, st.Mtim, st.Ctim)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	sub, err := openDir(fd, base)
	if err != nil {
		_, err := fmt.Fprintf(p, "%v\n", err) // as unreadable as before
		return err
	}
	f := dirFile(sub)
	defer f.Close()
	entries, err := f.ReadDir(maxCompared + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(entries) > maxCompared {
		return errTooBig
	}
	return p.all(int(f.Fd()), entries, rel, depth)
}

func (p *print) all(dir int, entries []fs.DirEntry, rel string, depth int) error {
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := p.add(dir, e.Name(), path.Join(rel, e.Name()), depth+1); err != nil {
			return err
		}
	}
	return nil
}
