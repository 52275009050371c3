// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/sandbox"
)

const (
	packPrefix  = "pack-" + format
	keepPacks   = 4
	packsSize   = 32 << 30 // bytes, without the one that is made
	packInfo    = "pack.json"
	maxPackInfo = 64 << 10 // bytes
)

// packsIn are the packs of a directory, as a cache.
func packsIn(dir string) cache {
	return cache{dir: dir, prefix: packPrefix, keep: keepPacks, size: packsSize, weighs: erofsName}
}

// Packs are the roots in a directory that were packed for virtual machines
// ([PackOptions].Cache). They may be used from many goroutines and processes.
type Packs struct{ c cache }

// FindPacks opens the packs in dir for who wants to know what is there, or takes some of it
// away, and makes nothing: where dir does not exist, there are none.
func FindPacks(dir string) (*Packs, error) {
	if err := private(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &Packs{packsIn(dir)}, nil
}

// List lists the packs, the last used first.
func (p *Packs) List() []*Pack {
	all := p.c.packs()
	for _, one := range all {
		name := p.c.prefix + keyOf(one.Digest)
		f, done := p.c.take(name)
		_, err := os.Lstat(filepath.Join(p.c.dir, name))
		one.InUse = f == nil && err == nil
		done()
	}
	return all
}

// packs reads what is known of each, without whether it is used.
func (c cache) packs() (out []*Pack) {
	entries, _ := os.ReadDir(c.dir) // where there is none, there are none
	for _, e := range entries {
		key, ours := strings.CutPrefix(e.Name(), c.prefix)
		info, err := e.Info()
		if !ours || err != nil {
			continue
		}
		one := &Pack{}
		if b, err := files.Read(filepath.Join(c.dir, e.Name(), packInfo), maxPackInfo); err != nil || json.Unmarshal(b, one) != nil {
			one = &Pack{} // an older caisson's
		}
		one.Digest, one.Used = "sha256:"+key, info.ModTime()
		one.Size = allocated(filepath.Join(c.dir, e.Name(), erofsName)) + allocated(filepath.Join(c.dir, e.Name(), packIndex))
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b *Pack) int {
		if n := b.Used.Compare(a.Used); n != 0 {
			return n
		}
		return strings.Compare(a.Digest, b.Digest)
	})
	return out
}

// allocated is how many bytes of the disk a file takes.
func allocated(name string) int64 {
	var st unix.Stat_t
	if unix.Lstat(name, &st) != nil {
		return 0 // it was removed meanwhile
	}
	return st.Blocks * 512
}

// Find finds a pack by its digest, or the beginning of that (12 digits or more); ErrNotFound
// where there is none.
func (p *Packs) Find(name string) (*Pack, error) {
	prefix := strings.TrimPrefix(name, "sha256:")
	for _, one := range p.c.packs() {
		if len(prefix) >= 12 && strings.HasPrefix(keyOf(one.Digest), prefix) {
			return one, nil
		}
	}
	return nil, &sandbox.Error{Op: "image " + name, Kind: sandbox.ErrNotFound, Problem: "it is not here", Hint: "caisson image ls lists what is"}
}

// Remove removes a pack. One that a sandbox uses is ErrUnavailable.
func (p *Packs) Remove(one *Pack) error {
	if p.c.remove(p.c.prefix+keyOf(one.Digest), nil) {
		return nil
	}
	return &sandbox.Error{Op: "remove pack " + one.Digest, Kind: sandbox.ErrUnavailable, Problem: "a sandbox uses it, or it cannot be written to", Hint: "try again when that has ended"}
}

// Prune removes packs that are not in use, and what builders left that have died: with all
// each one, else those that were made before another one of the same files, and are made no
// more. A paused machine holds none: where its pack is gone, and is not made again as it was,
// it begins anew with its files.
func (p *Packs) Prune(all bool) []*Pack {
	p.c.sweep()
	list := p.c.packs()
	var gone []*Pack
	for _, one := range list {
		newer := slices.ContainsFunc(list, func(other *Pack) bool { return other.From == one.From && other.Made.After(one.Made) })
		if (all || newer || one.From == "") && p.Remove(one) == nil {
			gone = append(gone, one)
		}
	}
	return gone
}
