// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/internal/files"
)

// packFile is the file of a pack that is being made.
type packFile struct {
	*os.File
	contents *fstree.Contents
	name     string // of what its layout is made from

	// Of an older pack, whose file it was:
	have index  // its contents
	at   string // its directory now, and was before; empty where there is none
	was  string
	size int64 // of the file then
}

// write writes the packed root to a new directory, unless it is another one by then than was
// looked at.
func (p packing) write(ctx context.Context, c cache, was *looked, at string, tell func(done, total int64)) (err error) {
	f, err := p.begin(c, was, at)
	if err != nil {
		return diskError(err)
	}
	defer f.Close()
	defer func() {
		if err != nil {
			f.giveBack()
		}
	}()
	room, err := p.room(ctx, c, was, f, at)
	if err != nil {
		return err
	}
	total := was.total.size()
	to := &packer{contents: f.contents, have: f.have, room: room, began: was.began}
	if tell != nil {
		to.tell = func(bytes int64) { tell(min(bytes, total-1), total) }
	}
	l, err := p.look(ctx, to)
	if err != nil {
		return err
	}
	if l.digest != was.digest {
		return changedMeanwhile(nil)
	}
	if err := f.finish(l, at); err != nil {
		return diskError(err)
	}
	if tell != nil {
		tell(total, total)
	}
	return diskError(p.describe(l, at))
}

// finish completes the file, in the pack's directory. There is no way back for an older one.
func (f *packFile) finish(l *looked, at string) error {
	old := f.at
	f.at = ""
	if err := finish(f.File, l.root, f.contents, f.name); err != nil || old == "" {
		return err
	}
	return errors.Join(os.Rename(filepath.Join(old, erofsName), filepath.Join(at, erofsName)), os.RemoveAll(old))
}

// giveBack makes of the file the older pack that it was: what was written came behind it. That
// it fails costs as much as there was to gain.
func (f *packFile) giveBack() {
	if f.at != "" && f.Truncate(f.size) == nil && f.Chmod(0o400) == nil {
		_ = os.Rename(f.at, f.was)
	}
}

// room is how many bytes may be written to a file. Where there is no room for all that is not
// in it yet, other packs go that are not used; where there still is none, nothing is written.
func (p packing) room(ctx context.Context, c cache, was *looked, f *packFile, at string) (int64, error) {
	free := freeIn
	if p.free != nil {
		free = p.free
	}
	room, err := free(at)
	need := was.total.size()
	if err != nil || need <= room {
		return room, err
	}
	if f.have != nil {
		l, err := p.look(ctx, &packer{have: f.have, began: was.began})
		if err != nil {
			return 0, err
		}
		if need -= l.had; need <= room {
			return room, nil
		}
	}
	c.keep = 1
	c.prune("")
	if room, err = free(at); err == nil && need > room {
		err = noRoom(need, room)
	}
	return room, err
}

// begin makes the file, or takes that of an older pack of the same files: what has not
// changed stays in it, and what is new comes behind that. No machine uses that pack, and none
// gets it any more.
func (p packing) begin(c cache, was *looked, at string) (*packFile, error) {
	for _, old := range c.takeable(p, was) {
		if f := c.takeOver(old, at); f != nil {
			return f, nil
		}
	}
	f, err := os.OpenFile(filepath.Join(at, erofsName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &packFile{File: f, contents: fstree.NewContents(f), name: was.digest}, nil
}

// anyDigest is one of nothing. A pack that took another's file has its contents in an order of
// its own, and memory of a machine, which has seen that order, is for no other.
func anyDigest() string {
	var b [32]byte
	rand.Read(b[:])
	return "sha256:" + hex.EncodeToString(b[:])
}

// takeable are the packs of the same files, the last used first, that are not mostly holes
// by now.
func (c cache) takeable(p packing, was *looked) (out []*Pack) {
	const slack = 1 << 30
	for _, old := range c.packs() {
		info, err := os.Lstat(filepath.Join(c.dir, c.prefix+keyOf(old.Digest), erofsName))
		if err == nil && old.From == p.from && info.Size() <= 2*was.total.size()+slack {
			out = append(out, old)
		}
	}
	return out
}

// takeOver moves a pack that is not used into another directory, to go on with its file; nil
// where it is used, or damaged.
func (c cache) takeOver(old *Pack, at string) *packFile {
	held, done := c.take(c.prefix + keyOf(old.Digest))
	defer done()
	p := &packFile{at: filepath.Join(at, "old")}
	if held == nil || os.Rename(held.Name(), p.at) != nil {
		return nil
	}
	p.was = held.Name()
	if err := p.open(); err != nil {
		if p.File != nil {
			p.Close()
		}
		os.RemoveAll(p.at) // it is no pack
		return nil
	}
	return p
}

// open opens the file of an older pack, to write behind what there is.
func (f *packFile) open() (err error) {
	name := filepath.Join(f.at, erofsName)
	if err := os.Chmod(name, 0o600); err != nil {
		return err
	}
	if f.File, err = os.OpenFile(name, os.O_RDWR, 0); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end, err := fstree.EROFSDataEnd(f)
	if err != nil || end > info.Size() {
		return errors.Join(err, fstree.ErrDamaged)
	}
	if f.have, err = readIndex(filepath.Join(f.at, packIndex), end); err != nil {
		return err
	}
	f.size, f.name = info.Size(), anyDigest()
	f.contents = fstree.MoreContents(io.NewOffsetWriter(f, f.size), f.size)
	return nil
}

// describe writes down what a pack is made of, and where its contents are, and waits until the
// disk has that.
func (p packing) describe(l *looked, at string) error {
	b, err := json.MarshalIndent(Pack{Digest: l.digest, From: p.from, Files: l.total.files, Made: time.Now().UTC().Truncate(time.Millisecond)}, "", "  ")
	if err != nil {
		return err
	}
	if err := files.Make(filepath.Join(at, packInfo), b); err != nil {
		return err
	}
	if err := files.Make(filepath.Join(at, packIndex), formatIndex(l.kept)); err != nil {
		return err
	}
	d, err := os.Open(at)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
