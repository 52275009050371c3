// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/sandbox"
)

const (
	erofsName = "root.erofs"
	infoName  = "image.json"
)

// pack makes an image in dir, which is empty and ours alone: layers are read
// once, from the lowest to the uppermost, contents of files go straight to
// where they stay, and the tree is written behind them.
func pack(ctx context.Context, img *Image, dir string, progress func(done, total int64)) error {
	f, err := os.OpenFile(filepath.Join(dir, erofsName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	contents := fstree.NewContents(f)
	u := fstree.NewUnpacker(contents, fstree.Bounds{})
	meter := &meter{total: img.Size, tell: progress}
	for _, b := range img.Layers {
		if err := u.Apply(ctx, meter.watch(b)); err != nil {
			return diskError(err)
		}
	}
	info := &Stored{Digest: img.Digest, Config: img.Config, Left: u.Left, Made: time.Now().UTC().Truncate(time.Second)}
	d := &dresser{root: u.Root, out: info,
		read: func(n *fstree.Node) ([]byte, error) {
			if _, err := contents.End(); err != nil {
				return nil, err
			}
			return readAll(f, n)
		},
		write: func(text string) (*fstree.Node, error) { return addFile(contents, text) },
	}
	if err := d.dress(img.Config); err != nil {
		return diskError(err)
	}
	if err := finish(f, u.Root, contents, img.Digest); err != nil {
		return diskError(err)
	}
	info.Files, info.Size = u.Root.Count()
	return diskError(info.write(dir))
}

// write keeps what is known of an image in its directory, and waits until the disk has
// it, and the directory its names: see finish.
func (i *Stored) write(dir string) error {
	b, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	if err := files.Make(filepath.Join(dir, infoName), b); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// addFile adds a file of our own.
func addFile(c *fstree.Contents, text string) (*fstree.Node, error) {
	n := &fstree.Node{Kind: fstree.File, Mode: 0o644, Size: int64(len(text))}
	if text == "" {
		return n, nil
	}
	var err error
	if n.Offset, err = c.Begin(); err != nil {
		return nil, err
	}
	_, err = c.Write([]byte(text))
	return n, err
}

// finish writes the tree behind the contents, gives back the room of contents
// that an upper layer replaced, and waits until the disk has it all: the name
// that it gets next must not outlive a power failure without it.
func finish(f *os.File, root *fstree.Node, contents *fstree.Contents, digest string) error {
	end, err := contents.End()
	if err != nil {
		return err
	}
	size, err := fstree.WriteEROFS(f, root, end, uuidOf(digest))
	if err != nil {
		return err
	}
	if err := punch(f, root, end); err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	if err := f.Chmod(0o400); err != nil {
		return err
	}
	return f.Sync()
}

// uuidOf identifies an image.
func uuidOf(digest string) (uuid [16]byte) {
	sum, _ := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
	copy(uuid[:], sum)
	return uuid
}

// punch gives back the blocks below end that no file of the tree has. They are zeros then,
// also in a file system that cannot take them back: the file is shown as a whole to who may
// not have what was in them.
func punch(f *os.File, root *fstree.Node, end int64) error {
	type part struct{ from, to int64 }
	var live []part
	seen := map[*fstree.Node]bool{}
	var walk func(*fstree.Node)
	walk = func(n *fstree.Node) {
		for _, c := range n.Children {
			switch {
			case c.Kind == fstree.Dir:
				walk(c)
			case c.Size > 0 && !seen[c]:
				seen[c] = true
				live = append(live, part{c.Offset, (c.Offset + c.Size + fstree.Block - 1) / fstree.Block * fstree.Block})
			}
		}
	}
	walk(root)
	slices.SortFunc(live, func(a, b part) int { return int(min(max(a.from-b.from, -1), 1)) })
	at := int64(fstree.DataStart)
	for _, p := range append(live, part{end / fstree.Block * fstree.Block, end}) {
		if p.from > at && unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, p.from-at) != nil {
			if _, err := io.CopyN(io.NewOffsetWriter(f, at), zeros{}, p.from-at); err != nil {
				return err
			}
		}
		at = max(at, p.to)
	}
	return nil
}

// zeros are as many as are read.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// meter tells how much was read.
type meter struct {
	done  atomic.Int64
	total int64
	tell  func(done, total int64)
}

// watch counts what is read of a layer.
func (m *meter) watch(b fstree.Blob) fstree.Blob {
	open := b.Open
	b.Open = func() (io.ReadCloser, error) {
		rc, err := open()
		if err != nil || m.tell == nil {
			return rc, err
		}
		return &metered{rc, m}, nil
	}
	return b
}

type metered struct {
	io.ReadCloser
	m *meter
}

func (r *metered) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.m.tell(r.m.done.Add(int64(n)), r.m.total)
	return n, err
}

// diskError leaves the errors of this program alone and explains the disk's.
func diskError(err error) error {
	var known *sandbox.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return cacheError("unpack image", err)
}

// keyOf is the name of an image in the cache.
func keyOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// shortHash is a name made of anything.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}
