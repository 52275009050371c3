// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// packDir packs a directory.
func packDir(t *testing.T, dir, packs string) *Root {
	t.Helper()
	r, err := PackDir(t.Context(), handle(t, dir), PackOptions{Cache: packs})
	must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// What is too much is refused before anything is written, and so is what the disk has no room
// for; what was begun leaves nothing.
func TestPackBounds(t *testing.T) {
	rest(t, 50*time.Millisecond)
	host := fakeHost(t, "a=text", "b/c=text", "b/link->a", "large="+strings.Repeat("x", 3*4096))
	must(t, unix.Mkfifo(filepath.Join(host, "pipe"), 0o644))
	sparse := fakeHost(t, "small=text")
	f, err := os.Create(filepath.Join(sparse, "huge"))
	must(t, err)
	must(t, errors.Join(f.Truncate(1<<42), f.Close()))
	enough := amount{files: 6, text: 64, bytes: 5 * 4096}
	for name, tt := range map[string]struct {
		dir  string
		max  amount
		room int64
		want string
	}{
		"enough":          {host, enough, 1 << 20, ""},
		"too many files":  {host, amount{5, 64, 5 * 4096}, 1 << 20, "more than 5 files"},
		"too long names":  {host, amount{6, 16, 5 * 4096}, 1 << 20, "names and links"},
		"too large":       {host, amount{6, 64, 5*4096 - 1}, 1 << 20, "more than 0 GiB"},
		"a file of holes": {sparse, maxPack, 1 << 50, "more than 16 GiB"},
		"no room":         {host, enough, 4 * 4096, "to be left free"},
		"less than spare": {host, enough, -1, "has 0 MiB"},
	} {
		dir, err := os.Open(tt.dir)
		must(t, err)
		defer dir.Close()
		cache := t.TempDir()
		must(t, os.Chmod(cache, 0o700))
		told := int64(0)
		p := packing{from: tt.dir, dir: dir, max: tt.max, free: func(string) (int64, error) { return tt.room, nil }}
		r, err := packed(t.Context(), p, PackOptions{Cache: cache, Progress: func(done, _ int64) { told = done }})
		if tt.want == "" {
			must(t, err)
			r.Close()
			if told == 0 {
				t.Errorf("%s: nothing was told", name)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || sandbox.Hint(err) == "" || strings.Contains(err.Error(), `"b"`) {
			t.Errorf("%s: %v (hint %q), want %q", name, err, sandbox.Hint(err), tt.want)
		}
		if told > 0 {
			t.Errorf("%s: %d bytes were packed", name, told)
		}
		noPack(t, cache)
	}
}

// noPack sees that a cache has nothing.
func noPack(t *testing.T, cache string) {
	t.Helper()
	left, err := os.ReadDir(cache)
	must(t, err)
	for _, e := range left {
		if e.Name() != buildingName {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// Packs that are not used make room.
func TestPackMakesRoom(t *testing.T) {
	rest(t, 50*time.Millisecond)
	dir := filepath.Join(t.TempDir(), "packs")
	used, unused := packDir(t, fakeHost(t, "a=used"), dir), packDir(t, fakeHost(t, "a=unused"), dir)
	must(t, unused.Close())
	src, err := os.Open(fakeHost(t, "a=new"))
	must(t, err)
	defer src.Close()
	free := func(string) (int64, error) {
		if _, err := os.Lstat(filepath.Dir(unused.root.Image.EROFS.Name())); err != nil {
			return 1 << 20, nil
		}
		return 0, nil
	}
	r, err := packed(t.Context(), packing{from: "new", dir: src, free: free}, PackOptions{Cache: dir})
	must(t, err)
	defer r.Close()
	if text(t, used, "/a") != "used" {
		t.Error("what is used has lost its files")
	}
	if _, err := os.Lstat(used.root.Image.EROFS.Name()); err != nil {
		t.Error(err)
	}
}

// So they do where an older pack's file goes on, as far as the disk lacks room for what is not
// in that; where it still does, what is said is true.
func TestPackGoesOnMakesRoom(t *testing.T) {
	rest(t, 50*time.Millisecond)
	for name, tt := range map[string]struct {
		room, after int64 // in MiB, with and without the other pack
		gone        bool
		want        string
	}{
		"room for what is new": {room: 3},
		"room for all":         {room: 9},
		"room when it is gone": {room: 0, after: 3, gone: true},
		"no room":              {room: 0, after: 1, gone: true, want: "it takes 2 MiB, and the disk of the state directory has 1 MiB"},
	} {
		host, packs := fakeHost(t, "a=text", "b="+strings.Repeat("x", 4<<20)), filepath.Join(t.TempDir(), "packs")
		must(t, packDir(t, host, packs).Close())
		other := packDir(t, fakeHost(t, "a=other"), packs)
		must(t, other.Close())
		must(t, os.WriteFile(filepath.Join(host, "a"), []byte(strings.Repeat("y", 2<<20)), 0o644))
		src, err := os.Open(host)
		must(t, err)
		defer src.Close()
		var copied []string
		p := packing{from: host, dir: src, onCopy: func(name string) { copied = append(copied, name) }, free: func(string) (int64, error) {
			if _, err := os.Lstat(other.root.Image.EROFS.Name()); err != nil {
				return tt.after << 20, nil
			}
			return tt.room << 20, nil
		}}
		r, err := packed(t.Context(), p, PackOptions{Cache: packs})
		if err == nil {
			r.Close()
		}
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if tt.want == "" && !slices.Equal(copied, []string{"a"}) {
			t.Errorf("%s: copied are %q", name, copied)
		}
		if _, err := os.Lstat(other.root.Image.EROFS.Name()); (err != nil) != tt.gone {
			t.Errorf("%s: the other pack: %v", name, err)
		}
	}
}

// What is more by the time that it is written than it was is said as it is.
func TestPackRunsOutOfRoom(t *testing.T) {
	rest(t, 50*time.Millisecond)
	host := fakeHost(t, "a="+strings.Repeat("x", 2<<20), "b="+strings.Repeat("x", 3<<20))
	src, err := os.Open(host)
	must(t, err)
	defer src.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "contents"))
	must(t, err)
	defer f.Close()
	_, err = packing{from: host, dir: src}.look(t.Context(), &packer{contents: fstree.NewContents(f), room: 4 << 20})
	if want := "it takes 5 MiB, and the disk of the state directory has 4 MiB"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
