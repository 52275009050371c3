// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	reserveFile = "reserve"
	// reserveSize is enough for some hundred ends: an end is a few KiB in each database
	// and its log, which grow by pages.
	reserveSize  = 4 << 20
	reservePiece = 64 << 10
)

// Reserve is a part of the disk that is kept for writing down how things ended when
// the rest of it is full. It is a file of its size, which is given up while that is
// written, and taken back as far as the disk lets it.
//
// What begins waits until it is whole; see audit.Options. It may be used from many
// goroutines.
type Reserve struct {
	mu   sync.Mutex
	file *os.File
	have int64
}

// Reserve opens the directory's reserve, and makes it where it is missing. On a full
// disk it is not whole.
func (d *Dir) Reserve() (*Reserve, error) {
	path := filepath.Join(d.Path(), reserveFile)
	failed := func(err error) error {
		return &sandbox.Error{Op: "open " + path, Kind: sandbox.ErrUnavailable, Problem: "no disk space can be kept for ends", Cause: err}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, failed(err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, failed(err)
	}
	r := &Reserve{file: f, have: st.Size()}
	r.grow()
	return r, nil
}

// Whole reports whether all of it is there, once what the disk has was taken back.
func (r *Reserve) Whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grow()
}

// Spend gives it up while do writes something down, and returns do's error.
func (r *Reserve) Spend(do func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file.Truncate(0) == nil {
		r.have = 0
	}
	defer r.grow()
	return do()
}

// grow takes what the disk has of what is missing. What it writes is random: a file
// system that packs would keep no room for anything else.
func (r *Reserve) grow() (whole bool) {
	var piece []byte
	for r.have < reserveSize {
		if piece == nil {
			piece = make([]byte, reservePiece)
		}
		rand.Read(piece)
		n, err := r.file.WriteAt(piece[:min(reservePiece, reserveSize-r.have)], r.have)
		r.have += int64(n)
		if err != nil {
			return false
		}
	}
	return true
}

// Close closes the file. It keeps its room.
func (r *Reserve) Close() error { return r.file.Close() }
