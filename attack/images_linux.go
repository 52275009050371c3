// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
)

// unpack makes a tree of an image as caisson run --image does.
func unpack(ctx context.Context, archive, dir string) error {
	store, err := image.OpenStore(dir)
	if err != nil {
		return err
	}
	ref, err := reference.Parse("docker-archive:" + archive)
	if err != nil {
		return err
	}
	info, err := store.Get(ctx, ref, image.PullOptions{})
	if err != nil {
		return err
	}
	root, err := store.Root(ctx, info, image.RootOptions{Targets: []image.Target{{Path: "/dev/shm", Dir: true}, {Path: "/tmp", Dir: true}, {Path: "/data/F11", Dir: true}}})
	if err != nil {
		return err
	}
	return root.Close()
}

// hostileImages are layers that go for what lies outside of where they are
// unpacked. Each is refused or does no harm: what happens is looked at.
func (s *suite) hostileImages(ctx context.Context) finding {
	out := s.out
	file := func(name, text string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}
	}
	up := strings.Repeat("../", 24)
	return s.images(ctx, map[string][]tar.Header{
		"a name with ..":                  {file(up+out[1:]+"/evil", "x")},
		"an absolute name":                {file(out+"/evil", "x")},
		"a link, then through it":         {link("d", out), file("d/evil", "x")},
		"a link with .., then through it": {link("d", up+out[1:]), file("d/evil", "x")},
		"a hard link to a host file":      {{Typeflag: tar.TypeLink, Name: "h", Linkname: out + "/F10"}},
		"a hard link with ..":             {{Typeflag: tar.TypeLink, Name: "h", Linkname: up + out[1:] + "/F10"}},
		"a hard link through a link":      {link("d", out), {Typeflag: tar.TypeLink, Name: "h", Linkname: "d/F10"}},
		"a removal through a link":        {link("d", out), file("d/.wh.F10", "")},
		"devices":                         {{Typeflag: tar.TypeBlock, Name: "sda", Mode: 0o666, Devmajor: 8}, {Typeflag: tar.TypeChar, Name: "mem", Mode: 0o666, Devmajor: 1, Devminor: 1}},
		"a set-user-id program":           {{Typeflag: tar.TypeReg, Name: "su", Mode: 0o6755}},
		"capabilities of a file":          {{Typeflag: tar.TypeReg, Name: "ping", Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"}}},
	})
}

// redirectingImages have links where sandboxes mount something (runc's
// CVE-2025-31133, -52565 and others): nothing is made where they lead.
func (s *suite) redirectingImages(ctx context.Context) finding {
	tricks := map[string][]tar.Header{}
	for _, name := range []string{"dev", "proc", "sys", "tmp", "etc", "home", "workspace", "data", "dev/shm", "dev/null", "etc/passwd", "etc/resolv.conf"} {
		for _, to := range []string{s.out, strings.Repeat("../", 24) + s.out[1:]} {
			tricks["/"+name+" as a link to "+to] = []tar.Header{{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}}
		}
	}
	return s.images(ctx, tricks)
}

// images unpacks each trick into a store of its own and looks at what is there
// then, and at what is outside.
func (s *suite) images(ctx context.Context, tricks map[string][]tar.Header) finding {
	before := listing(s.out)
	// An image that is refused shows nothing if every image is.
	if err := s.harmless(ctx); err != nil {
		return unable(fmt.Errorf("an image without tricks: %w", err))
	}
	for name, headers := range tricks {
		dir, err := os.MkdirTemp(s.dir, "images-")
		if err != nil {
			return unable(err)
		}
		archive := filepath.Join(dir, "image.tar")
		layer := layerOf(headers)
		if err := os.WriteFile(archive, saved(sha256.Sum256(layer), layer), 0o600); err != nil {
			return unable(err)
		}
		refused := s.Unpack(ctx, archive, filepath.Join(dir, "store"))
		if err := ctx.Err(); err != nil {
			return unable(err)
		}
		if now := listing(s.out); now != before {
			return breach("%s: it changed what lies outside", name)
		}
		if why := s.harmful(ctx, filepath.Join(dir, "store")); why != "" {
			return breach("%s: %s", name, why)
		}
		if _, err := os.Stat(filepath.Join(dir, "store")); err != nil {
			return finding{verdict: Unclear, reason: fmt.Sprintf("%s: the image was not looked at: %v", name, refused)}
		}
		_ = os.RemoveAll(dir)
	}
	return pass()
}

// harmless unpacks an image with one file.
func (s *suite) harmless(ctx context.Context) error {
	dir, err := os.MkdirTemp(s.dir, "images-")
	if err != nil {
		return err
	}
	layer := layerOf([]tar.Header{{Typeflag: tar.TypeReg, Name: "hello", Mode: 0o644, Size: 1}})
	archive := filepath.Join(dir, "image.tar")
	if err := os.WriteFile(archive, saved(sha256.Sum256(layer), layer), 0o600); err != nil {
		return err
	}
	return s.Unpack(ctx, archive, filepath.Join(dir, "store"))
}

// imageBomb is a small layer that becomes large.
func (s *suite) imageBomb(ctx context.Context) finding {
	const size, maximum = 256 << 20, 160 << 20
	if err := s.harmless(ctx); err != nil {
		return unable(fmt.Errorf("an image without tricks: %w", err))
	}
	dir, err := os.MkdirTemp(s.dir, "images-")
	if err != nil {
		return unable(err)
	}
	var packed bytes.Buffer
	digest := sha256.New()
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	w := tar.NewWriter(io.MultiWriter(z, digest))
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Size: size, Mode: 0o644})
	for zeros := make([]byte, 1<<20); err == nil; {
		_, err = w.Write(zeros) // until there is no more room for it
	}
	_ = w.Close()
	_ = z.Close()
	archive := filepath.Join(dir, "image.tar")
	if err := os.WriteFile(archive, saved([32]byte(digest.Sum(nil)), packed.Bytes()), 0o600); err != nil {
		return unable(err)
	}
	refused := s.Unpack(ctx, archive, filepath.Join(dir, "store"))
	took := int64(0)
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(path, &st) == nil {
			took += max(st.Size, st.Blocks*512)
		}
		return nil
	})
	if refused == nil || took > maximum {
		return breach("a layer of %d KiB was unpacked to %d MiB", packed.Len()>>10, took>>20)
	}
	return pass()
}

// listing is everything about a directory's names that an unpacker could change.
func listing(dir string) string {
	var b strings.Builder
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(path, &st) == nil {
			fmt.Fprintf(&b, "%s %o %d %d %d %d.%09d\n", path, st.Mode, st.Nlink, st.Uid, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
		}
		return nil
	})
	return b.String()
}

// harmful finds in an unpacked image what no image may bring to the host.
func (s *suite) harmful(ctx context.Context, dir string) (why string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || why != "" || unix.Lstat(path, &st) != nil {
			return nil
		}
		switch n, _ := unix.Lgetxattr(path, "security.capability", nil); {
		case st.Mode&unix.S_IFMT == unix.S_IFBLK || st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev != 0:
			why = "a device lies in the store"
		case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && !d.IsDir():
			why = "a set-user-id program lies in the store"
		case n > 0:
			why = "a program with capabilities lies in the store"
		}
		return nil
	})
	if why == "" && holds(ctx, dir, s.token("F10")) != "" {
		why = "a host file lies in the store"
	}
	return why
}

// layerOf is a layer of these entries. Files hold nothing that matters.
func layerOf(headers []tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if w.WriteHeader(&h) == nil && h.Size > 0 {
			_, _ = w.Write(bytes.Repeat([]byte("x"), int(h.Size)))
		}
	}
	_ = w.Close()
	return b.Bytes()
}

// saved is what docker save writes of an image with one layer, whose digest is
// that of its contents when it is not packed.
func saved(digest [sha256.Size]byte, layer []byte) []byte {
	diff := fmt.Sprintf("sha256:%x", digest)
	config, _ := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"/bin/true"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{diff}},
	})
	name := fmt.Sprintf("%x", sha256.Sum256(config))
	manifest, _ := json.Marshal([]map[string]any{{"Config": name + ".json", "RepoTags": []string{"attack:latest"}, "Layers": []string{"layer.tar"}}})
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		data []byte
	}{{"manifest.json", manifest}, {name + ".json", config}, {"layer.tar", layer}} {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.data))})
		_, _ = w.Write(f.data)
	}
	_ = w.Close()
	return b.Bytes()
}
