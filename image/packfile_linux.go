// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/internal/files"
)

// write writes the packed root to a new directory, unless it is another one by then than was
// looked at.
func (p packing) write(ctx context.Context, c cache, was *looked, at string, tell func(done, total int64)) error {
	room, err := p.room(c, was, at)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(at, erofsName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return diskError(err)
	}
	defer f.Close()
	total := was.total.size()
	to := &packer{contents: fstree.NewContents(f), room: room, began: was.began}
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
	if err := finish(f, l.root, to.contents, l.digest); err != nil {
		return diskError(err)
	}
	if tell != nil {
		tell(total, total)
	}
	return diskError(p.describe(l, at))
}

// describe writes down what a pack is made of, and waits until the disk has that.
func (p packing) describe(l *looked, at string) error {
	b, err := json.MarshalIndent(Pack{Digest: l.digest, From: p.from, Files: l.total.files, Made: time.Now().UTC().Truncate(time.Millisecond)}, "", "  ")
	if err != nil {
		return err
	}
	if err := files.Make(filepath.Join(at, packInfo), b); err != nil {
		return err
	}
	d, err := os.Open(at)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// room is how many bytes may be written. Where all of it has no room, other packs go that are
// not used; where it still has none, nothing is written.
func (p packing) room(c cache, was *looked, at string) (int64, error) {
	free := freeIn
	if p.free != nil {
		free = p.free
	}
	room, err := free(at)
	need := was.total.size()
	if err != nil || need <= room {
		return room, err
	}
	c.keep = 1
	c.prune("")
	if room, err = free(at); err == nil && need > room {
		err = noRoom(need, room)
	}
	return room, err
}
