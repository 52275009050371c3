// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

func digests(list []*Pack) (out []string) {
	for _, p := range list {
		out = append(out, p.Digest)
	}
	return out
}

// What is packed is listed, and goes when no sandbox uses it.
func TestPacks(t *testing.T) {
	rest(t, 50*time.Millisecond)
	dir := filepath.Join(t.TempDir(), "packs")
	packs, err := FindPacks(dir)
	must(t, err)
	if list := packs.List(); len(list) > 0 {
		t.Errorf("an empty directory has %+v", list)
	}
	host, other := fakeHost(t, "bin/a=text", "bin/b=more"), fakeHost(t, "bin/c=text")
	first := packDir(t, host, dir)
	must(t, os.WriteFile(filepath.Join(host, "bin/a"), []byte("changed"), 0o644))
	second, third := packDir(t, host, dir), packDir(t, other, dir)
	if first.root.Image.Digest == second.root.Image.Digest {
		t.Fatal("nothing has changed")
	}
	old := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(second.open[0].Name(), old, old))
	list := packs.List()
	i := slices.IndexFunc(list, func(p *Pack) bool { return p.Digest == second.root.Image.Digest })
	if len(list) != 3 || i != 2 {
		t.Fatalf("%d packs, the last used first: the oldest is the number %d", len(list), i)
	}
	p := list[i]
	if p.From != host || p.Files != 3 || p.Size < 4096 || p.Size > 1<<20 || time.Since(p.Made) > time.Minute || p.Used.Sub(old).Abs() > time.Second || !p.InUse {
		t.Errorf("%+v", p)
	}
	if _, err := packs.Find(p.Digest[7:18]); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("eleven digits: %v", err)
	}
	if found, err := packs.Find(p.Digest[7:19]); err != nil || found.Digest != p.Digest {
		t.Errorf("twelve digits: %+v, %v", found, err)
	}

	// What is used stays, whatever is asked for.
	if err := packs.Remove(p); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "a sandbox uses it") {
		t.Errorf("one in use: %v", err)
	}
	if gone := packs.Prune(true); len(gone) > 0 {
		t.Errorf("gone, and in use: %q", digests(gone))
	}
	if text(t, second, "/bin/a") != "changed" {
		t.Error("what is used has lost its files")
	}
	for _, r := range []*Root{first, second, third} {
		must(t, r.Close())
	}
	if gone := digests(packs.Prune(false)); !slices.Equal(gone, []string{first.root.Image.Digest}) {
		t.Errorf("without all: %q", gone)
	}
	must(t, packs.Remove(p))
	packs.Prune(true)
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 1 || left[0].Name() != buildingName {
		t.Errorf("left: %v", left)
	}
}

// A pack that is taken away while a sandbox starts is made again, and never without its file.
func TestPacksRaceWithStarts(t *testing.T) {
	rest(t, 50*time.Millisecond)
	dir, host := filepath.Join(t.TempDir(), "packs"), fakeHost(t, "bin/a=text")
	packDir(t, host, dir).Close()
	packs, err := FindPacks(dir)
	must(t, err)
	src := handle(t, host)
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			for range 20 {
				r, err := PackDir(t.Context(), src, PackOptions{Cache: dir})
				if err != nil {
					t.Errorf("%v", err)
					return
				}
				if got := text(t, r, "/bin/a"); got != "text" {
					t.Errorf("%q", got)
				}
				r.Close()
			}
		})
	}
	done := make(chan struct{})
	go func() { starts.Wait(); close(done) }()
	for {
		select {
		case <-done:
			return
		default:
			packs.Prune(true)
		}
	}
}
