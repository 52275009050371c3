// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Bounds of what a key's clients send for COPY.
const (
	// MaxUpload is how long an archive may be as it is sent, in bytes.
	MaxUpload        = 1 << 30
	maxUnpacked      = 2 << 30 // bytes of one
	maxUploadFiles   = 100_000
	maxUploads       = 64 // of a key
	maxUploadsOfAKey = 4 << 30
	uploadsDir       = "uploads" // below the directory of this process
	uploadTicket     = time.Hour // how long one may be sent
	keepUpload       = time.Hour // after its last use, while no build of its key runs
	dropUploadsEvery = 10 * time.Minute
)

// uploads are the files that clients have sent, below the directory of this process, with
// which they go. The mu of builds guards them.
type uploads struct {
	sent    map[uploadName]*upload
	tickets map[string]ticket // by the token
}

type uploadName struct{ owner, hash string }

type upload struct {
	dir  string
	size int64
	used time.Time // last
}

// ticket lets one archive be sent, once, without a key.
type ticket struct {
	uploadName
	until time.Time
}

// Ticket says whether the files of a hash are there; where they are not, token is good for
// sending them once, within the hour.
func (t *Templates) Ticket(hash string) (token string, present bool, err error) {
	if len(hash) < 16 || len(hash) > 128 || strings.Trim(hash, "0123456789abcdef") != "" {
		return "", false, sandbox.Errorf(sandbox.ErrInvalid, "upload", "the hash is no lower-case hex of 16 to 128 digits")
	}
	s := &t.boxes.builds
	s.mu.Lock()
	defer s.mu.Unlock()
	name := uploadName{t.key.ID, hash}
	now, mine := t.boxes.o.Clock.Now(), 0
	if one := s.uploads.sent[name]; one != nil {
		one.used = now
		return "", true, nil
	}
	for token, k := range s.uploads.tickets {
		if now.After(k.until) {
			delete(s.uploads.tickets, token)
		} else if k.owner == name.owner {
			mine++
		}
	}
	count, size := s.uploads.of(name.owner)
	if count+mine >= maxUploads || size >= maxUploadsOfAKey {
		return "", false, &sandbox.Error{Op: "upload", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("the key has sent %d archives of %s", count, session.Size(size)), Hint: "each is dropped an hour after its last use", Rule: ruleQuota}
	}
	if s.uploads.tickets == nil {
		s.uploads.tickets = map[string]ticket{}
	}
	token = strings.ToLower(rand.Text() + rand.Text())
	s.uploads.tickets[token] = ticket{name, now.Add(uploadTicket)}
	return token, false, nil
}

// of counts those of a key.
func (u *uploads) of(owner string) (n int, size int64) {
	for name, one := range u.sent {
		if name.owner == owner {
			n++
			size += one.size
		}
	}
	return n, size
}

// Upload takes the archive of a ticket, which counts for no other call from here on.
func (b *Sandboxes) Upload(token string, archive io.Reader) error {
	s := &b.builds
	s.mu.Lock()
	k, ok := s.uploads.tickets[token]
	delete(s.uploads.tickets, token)
	s.mu.Unlock()
	if !ok || b.o.Clock.Now().After(k.until) {
		return sandbox.Errorf(sandbox.ErrDenied, "upload", "this address is not good, or not any more; ask for another one")
	}
	if err := b.background.open(); err != nil {
		return err
	}
	parent := filepath.Join(b.claim.Path(), uploadsDir)
	if err := os.Mkdir(parent, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		return err
	}
	size, err := unpackUpload(dir, archive)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, all := s.uploads.of(k.owner)
	if s.uploads.sent[k.uploadName] != nil || n >= maxUploads || all+size > maxUploadsOfAKey {
		err = os.RemoveAll(dir)
		if s.uploads.sent[k.uploadName] == nil {
			err = errors.Join(sandbox.Errorf(sandbox.ErrExhausted, "upload", "the key's uploads are larger than %s together", session.Size(maxUploadsOfAKey)), err)
		}
		return err
	}
	if s.uploads.sent == nil {
		s.uploads.sent = map[uploadName]*upload{}
	}
	s.uploads.sent[k.uploadName] = &upload{dir, size, b.o.Clock.Now()}
	return nil
}

// openUpload opens what was sent of a hash.
func (t *Templates) openUpload(hash string) (*os.Root, error) {
	s := &t.boxes.builds
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.uploads.sent[uploadName{t.key.ID, hash}]
	if one == nil {
		return nil, &sandbox.Error{Op: "COPY", Kind: sandbox.ErrInvalid, Problem: "its files were not sent", Hint: "send them to the address that the files of the hash have"}
	}
	one.used = t.boxes.o.Clock.Now()
	return os.OpenRoot(one.dir)
}

// dropUploads drops what was not used for long. The files of a key's builds that run stay.
func (b *Sandboxes) dropUploads() error {
	s := &b.builds
	s.mu.Lock()
	defer s.mu.Unlock()
	builds := map[string]bool{}
	for _, one := range s.all {
		builds[one.owner] = builds[one.owner] || one.State == BuildRunning
	}
	var err error
	for name, one := range s.uploads.sent {
		if !builds[name.owner] && b.o.Clock.Now().Sub(one.used) > keepUpload {
			delete(s.uploads.sent, name)
			err = errors.Join(err, os.RemoveAll(one.dir))
		}
	}
	return err
}

// unpackUpload unpacks a tar archive, packed with gzip or not, into an empty directory. It
// makes directories, files and links; no link is followed out of the directory.
func unpackUpload(dir string, archive io.Reader) (size int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	b := bufio.NewReader(archive)
	var plain io.Reader = b
	if head, _ := b.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return 0, badUpload("it is damaged: %v", err)
		}
		plain = z
	}
	limited := &io.LimitedReader{R: plain, N: maxUnpacked}
	r := tar.NewReader(limited)
	for n := 0; ; n++ {
		h, err := r.Next()
		if err == io.EOF {
			return maxUnpacked - limited.N, nil
		}
		if n >= maxUploadFiles || limited.N <= 0 {
			return 0, sandbox.Errorf(sandbox.ErrExhausted, "upload", "it has more than %d files or %s", maxUploadFiles, session.Size(maxUnpacked))
		}
		if err != nil {
			e := badUpload("it is no tar archive")
			e.Cause = err
			return 0, e
		}
		if err := unpackEntry(root, h, r); err != nil {
			return 0, err
		}
	}
}

func unpackEntry(root *os.Root, h *tar.Header, r io.Reader) error {
	name := filepath.Clean(h.Name)
	if !filepath.IsLocal(name) {
		return badUpload("%s leads out of it", sandbox.Quoted(sandbox.Clip(h.Name, 200)))
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	wrong := func(err error) error {
		if err != nil {
			e := badUpload("%s cannot be unpacked", sandbox.Quoted(sandbox.Clip(name, 200)))
			e.Cause = err
			return e
		}
		return nil
	}
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return wrong(err)
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return wrong(err)
		}
		return wrong(root.Chmod(name, mode|0o700))
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return wrong(err)
		}
		_, err = io.Copy(f, r)
		return wrong(errors.Join(err, f.Chmod(mode|0o400), f.Close()))
	case tar.TypeSymlink:
		return wrong(root.Symlink(h.Linkname, name))
	case tar.TypeXGlobalHeader:
		return nil
	}
	return badUpload("%s is no file, directory or symbolic link", sandbox.Quoted(sandbox.Clip(name, 200)))
}

func badUpload(format string, args ...any) *sandbox.Error {
	return &sandbox.Error{Op: "upload", Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf(format, args...), Hint: "send a tar archive, packed with gzip or not"}
}
