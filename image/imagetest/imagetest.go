// SPDX-License-Identifier: Apache-2.0

// Package imagetest makes small container images for tests, out of lines of
// text and programs of this host, and serves them from a registry inside the
// test. The library that writes them is not the code that reads them.
package imagetest

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image is an image that was made.
type Image struct {
	v1.Image
	t testing.TB
}

// Config is what an image says of how it is run.
type Config = v1.Config

// New makes an image of layers for this host's processor.
func New(t testing.TB, c Config, layers ...[]byte) *Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: c})
	must(t, err)
	for _, b := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
		must(t, err)
		img, err = mutate.AppendLayers(img, l)
		must(t, err)
	}
	return &Image{img, t}
}

// Digest is the image's, as text.
func (i *Image) Digest() string {
	h, err := i.Image.Digest()
	must(i.t, err)
	return h.String()
}

// Layout writes the image as an OCI image layout.
func (i *Image) Layout(dir string) {
	i.t.Helper()
	p, err := layout.Write(dir, empty.Index)
	must(i.t, err)
	must(i.t, p.AppendImage(i.Image))
}

// Archive writes the image as docker save does, under a tag.
func (i *Image) Archive(file, tag string) {
	i.t.Helper()
	ref, err := name.NewTag(tag)
	must(i.t, err)
	must(i.t, tarball.WriteToFile(file, ref, i.Image))
}

// Push puts the image into a registry, under "host:port/repository:tag".
func (i *Image) Push(ref string) {
	i.t.Helper()
	r, err := name.ParseReference(ref)
	must(i.t, err)
	must(i.t, remote.Write(r, i.Image))
}

// Registry serves a registry on loopback until the test ends, and gives its
// host and port.
func Registry(t testing.TB) string {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// Layer makes an archive of lines: "dir/", "file=text", "link->target",
// "name=>hard link", or a tar.Header.
func Layer(t testing.TB, lines ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, l := range lines {
		h, text := entry(l)
		must(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, text)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func entry(l any) (tar.Header, string) {
	s, ok := l.(string)
	if !ok {
		return l.(tar.Header), ""
	}
	for _, sep := range []struct {
		text string
		kind byte
	}{{"->", tar.TypeSymlink}, {"=>", tar.TypeLink}} {
		if at, to, ok := strings.Cut(s, sep.text); ok {
			return tar.Header{Typeflag: sep.kind, Name: at, Linkname: to, Mode: 0o777}, ""
		}
	}
	if at, text, ok := strings.Cut(s, "="); ok {
		return tar.Header{Typeflag: tar.TypeReg, Name: at, Mode: 0o644, Size: int64(len(text))}, text
	}
	return tar.Header{Typeflag: tar.TypeDir, Name: s, Mode: 0o755}, ""
}

// Programs makes a layer of programs of this host and the libraries they need,
// at the places where they are here, and links /bin and /lib as most systems
// have them. One that is named by its whole path may be a library.
func Programs(t testing.TB, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, d := range []string{"usr/", "usr/bin/", "usr/lib/", "usr/lib64/"} {
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d, Mode: 0o755}))
	}
	for from, to := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: from, Linkname: to, Mode: 0o777}))
	}
	for _, at := range closure(t, names) {
		must(t, addFile(w, at))
	}
	must(t, w.Close())
	return b.Bytes()
}

// addFile adds a file of this host under its own name below /usr.
func addFile(w *tar.Writer, at string) error {
	b, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	to := strings.TrimPrefix(at, "/")
	if !strings.HasPrefix(to, "usr/") {
		to = "usr/" + to
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: to, Mode: 0o755, Size: int64(len(b))}); err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// closure lists the files of programs and of all libraries they need.
func closure(t testing.TB, names []string) []string {
	var out []string
	for _, n := range names {
		if !filepath.IsAbs(n) {
			at, err := exec.LookPath(n)
			must(t, err)
			n = at
		}
		out = append(out, n)
	}
	for i := 0; i < len(out); i++ {
		f, err := elf.Open(out[i])
		if err != nil {
			t.Fatalf("%s is no program of its own: %v", out[i], err)
		}
		libs, err := f.ImportedLibraries()
		must(t, err)
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				b, err := io.ReadAll(p.Open())
				must(t, err)
				libs = append(libs, strings.TrimRight(string(b), "\x00"))
			}
		}
		f.Close()
		for _, l := range libs {
			if at := library(t, l); !slices.Contains(out, at) {
				out = append(out, at)
			}
		}
	}
	return out
}

// library finds a library where the dynamic linker looks by itself.
func library(t testing.TB, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	for _, pattern := range []string{"/lib/*-linux-*/", "/usr/lib/*-linux-*/", "/lib64/", "/usr/lib64/", "/lib/", "/usr/lib/"} {
		if found, _ := filepath.Glob(pattern + name); len(found) > 0 {
			return found[0]
		}
	}
	t.Fatalf("the library %s is not found", name)
	return ""
}

// Tree makes a layer of a directory of this host, shown at the path at, until
// it holds about most bytes.
func Tree(t testing.TB, dir, at string, maximum int64) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var total int64
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		info, ierr := d.Info()
		if err != nil || ierr != nil {
			return nil
		}
		name := filepath.Join(at, strings.TrimPrefix(p, dir))
		switch {
		case d.IsDir():
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: info.ModTime()})
		case d.Type() == fs.ModeSymlink:
			to, err := os.Readlink(p)
			if err != nil {
				return nil
			}
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777, ModTime: info.ModTime()})
		case !d.Type().IsRegular() || total > maximum:
			return nil
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return nil
		}
		total += int64(len(data))
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(info.Mode().Perm() | 0o444), Size: int64(len(data)), ModTime: info.ModTime()}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}))
	must(t, w.Close())
	return b.Bytes()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("making an image: %w", err))
	}
}
