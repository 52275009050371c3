// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
)

// A packing that is cancelled leaves nothing, also within a file.
func TestPackCancelled(t *testing.T) {
	rest(t, 50*time.Millisecond)
	host := fakeHost(t, "a=text", "b=text")
	f, err := os.Create(filepath.Join(host, "c"))
	must(t, err)
	must(t, errors.Join(f.Truncate(1<<30), f.Close()))
	dir, err := os.Open(host)
	must(t, err)
	defer dir.Close()
	cache := t.TempDir()
	must(t, os.Chmod(cache, 0o700))
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("the caller has gone")
	p := packing{from: host, dir: dir, free: func(string) (int64, error) { return 1 << 40, nil }, onCopy: func(name string) {
		if name == "b" {
			cancel(over)
		}
	}}
	if _, err := packed(ctx, p, PackOptions{Cache: cache}); !errors.Is(err, over) {
		t.Errorf("%v", err)
	}
	noPack(t, cache)

	l, err := p.look(t.Context(), &packer{})
	must(t, err)
	r := &stopping{ctx, strings.NewReader("text")}
	if n, err := r.Read(make([]byte, 4)); n > 0 || !errors.Is(err, over) {
		t.Errorf("a file goes on for %d bytes, %v", n, err)
	}
	if l.total.bytes != 1<<30+2*4096 {
		t.Errorf("%+v", l.total)
	}
}

// holds says whether a block of a pack's file begins with a text.
func holds(t *testing.T, r *Root, text string) bool {
	t.Helper()
	f := r.root.Image.EROFS
	end, err := fstree.EROFSDataEnd(f)
	must(t, err)
	b := make([]byte, end)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	for at := fstree.DataStart; at < len(b); at += fstree.Block {
		if bytes.HasPrefix(b[at:], []byte(text+"\x00")) {
			return true
		}
	}
	return false
}

// A directory whose files are written to all the time has a packing wait for once, and no
// more for each file.
func TestPackWaitsOnce(t *testing.T) {
	rest(t, 50*time.Millisecond)
	host := fakeHost(t, "a=text")
	must(t, os.WriteFile(filepath.Join(host, "a"), []byte("now"), 0o644))
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(host, "a"), &st))
	settled = time.Hour
	p := &packer{ctx: t.Context(), began: time.Now().Add(-2 * settled)}
	if err := p.settle(&st); err == nil || !strings.Contains(err.Error(), "being changed") {
		t.Errorf("%v", err)
	}
}
