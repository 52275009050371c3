// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/sandbox"
)

// fileName holds key and certificate together, so that no moment has one
// without the other.
const fileName = "authority.pem"

// maxFile bounds that file, in bytes.
const maxFile = 64 << 10

// Open gives the authority of the installation whose state directory dir is, and
// makes it when there is none yet, or when it would end during a run that begins
// at now. What runs already keeps the one that it has. dir is the caller's own.
// Errors are *sandbox.Error.
func Open(dir string, now time.Time) (*Authority, error) {
	path := filepath.Join(dir, fileName)
	fail := func(problem, hint string, err error) (*Authority, error) {
		return nil, &sandbox.Error{Op: "certificate authority " + path, Kind: sandbox.ErrUnavailable, Problem: problem, Hint: hint, Cause: err}
	}
	a, err := read(path)
	switch {
	case err == nil && !a.stale(now):
		return a, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fail("it cannot be used: "+err.Error(), "remove the file; another is made then", err)
	}
	fresh, merr := New(now)
	if merr != nil {
		return fail("none can be made", "", merr)
	}
	if merr := fresh.write(path, err == nil); errors.Is(merr, os.ErrExist) {
		if a, err = read(path); err == nil && !a.stale(now) {
			return a, nil // another process was faster
		}
		return fail("it cannot be used", "remove the file; another is made then", err)
	} else if merr != nil {
		return fail("it cannot be written", "free some space there", merr)
	}
	return fresh, nil
}

// read takes a file that is ours alone.
func read(path string) (*Authority, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|asItIs, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular() || !mine(info):
		return nil, errors.New("it is not a file of this user")
	case info.Mode().Perm()&0o077 != 0:
		return nil, errors.New("others may read its key")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, err
	}
	return decode(b)
}

// write puts a whole file in place, or leaves what is there: an old one is
// replaced, a new one must be the first.
func (a *Authority) write(path string, replace bool) error {
	b, err := a.encode()
	if err != nil {
		return err
	}
	if replace {
		return files.Replace(path, b)
	}
	return files.Make(path, b)
}
