// SPDX-License-Identifier: Apache-2.0

// Package changes keeps what code changed in a copy-on-write workspace, shows it,
// and applies it to the workspace on the host.
//
// A [Set] is made of the overlay's upper layer by [Store.Keep], and is never changed
// afterwards. It says of each path what the host's file was when the set was made.
// [Store.Apply] takes the digest that was shown, compares each file of the host with
// what it was, and follows no link. What the host runs later by itself is held back: it
// is applied only when it is named.
//
// The layer is the code's. Names, sizes and the shape of the tree are bounded and
// checked; a layer that is malformed is refused.
package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Options say how long and how much a Store keeps. The zero value has the defaults.
type Options struct {
	MaxBytes int64            // of all sets; 2 GiB where it is 0
	MaxAge   time.Duration    // of a set; 7 days where it is 0
	Now      func() time.Time // time.Now where it is nil
}

const (
	defaultMaxBytes = 2 << 30
	defaultMaxAge   = 7 * 24 * time.Hour
)

// Store is a directory of sets. Several processes may have it open at once, and its
// methods may be called from many goroutines.
type Store struct {
	dir string
	o   Options
}

const (
	storeLock = "lock"   // in the store: held while sets come and go
	setLock   = "lock"   // in a set: held by its maker, who reads it (shared), and who applies or removes it
	makingDir = ".make-" // begins the names of sets that are not whole
)

// Open opens the store in dir, which it makes with mode 0700 where it is missing. What
// is too old goes, and what makers left who were killed.
func Open(dir string, o Options) (*Store, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.MaxAge == 0 {
		o.MaxAge = defaultMaxAge
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, storeError("open the change sets", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, storeError("open the change sets", err)
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return nil, &sandbox.Error{Op: "open the change sets", Kind: sandbox.ErrInvalid,
			Problem: fmt.Sprintf("%s has the mode %v; other users could read or change what is kept", sandbox.Quoted(dir), info.Mode()), Hint: "make it a directory with mode 0700"}
	}
	s := &Store{dir: dir, o: o}
	return s, s.exclusively(s.sweep)
}

// exclusively runs do while no other process adds or removes sets.
func (s *Store) exclusively(do func() error) error {
	lock, err := lockFile(filepath.Join(s.dir, storeLock), lockExclusive)
	if err != nil {
		return storeError("open the change sets", err)
	}
	defer lock.Close()
	return do()
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// storeError is a failure of the state directory.
func storeError(op string, err error) error {
	if e := (*sandbox.Error)(nil); errors.As(err, &e) {
		return err
	}
	return &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "the state directory does not do it", Hint: "see that it can be written and that its disk is not full", Cause: err}
}
