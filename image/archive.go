// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// Archive finds an image in a file that docker save (or podman save) wrote: the
// one called name, or where there is only one, that. The file must stay open
// until the layers have been read.
func Archive(f *os.File, name string) (*Image, error) {
	a, err := openArchive(f)
	if err != nil {
		return nil, err
	}
	if _, ok := a.files[indexName]; ok {
		return readLayout(a, name) // newer ones are an image layout, too
	}
	return a.read(name)
}

// archive is an archive whose members were found.
type archive struct {
	f     *os.File
	files map[string]member
}

// member is where a file of the archive is.
type member struct {
	at, size int64
	link     string // it is another one
}

const maxMembers = 100_000

// positioned knows where in the file the archive's reader is.
type positioned struct {
	f  *os.File
	at int64
}

func (p *positioned) Read(b []byte) (int, error) {
	n, err := p.f.ReadAt(b, p.at)
	p.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (p *positioned) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
		p.at = off
	case io.SeekCurrent:
		p.at += off
	case io.SeekEnd:
		info, err := p.f.Stat()
		if err != nil {
			return 0, err
		}
		p.at = info.Size() + off
	}
	return p.at, nil
}

func openArchive(f *os.File) (*archive, error) {
	head := make([]byte, 2)
	if _, err := f.ReadAt(head, 0); err == nil && bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return nil, &sandbox.Error{Op: "read image", Kind: sandbox.ErrInvalid, Problem: "the archive is compressed", Hint: "gunzip it first"}
	}
	a := &archive{f: f, files: map[string]member{}}
	p := &positioned{f: f}
	r := tar.NewReader(p)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return nil, invalid("it is no archive of an image: %v", err)
		}
		if len(a.files) >= maxMembers {
			return nil, invalid("it holds more than %d files", maxMembers)
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			a.files[name] = member{at: p.at, size: h.Size}
		case tar.TypeSymlink: // older ones have each layer once
			a.files[name] = member{link: path.Join(path.Dir(name), h.Linkname)}
		case tar.TypeLink:
			a.files[name] = member{link: path.Clean(h.Linkname)}
		}
	}
}

// open gives a member; links are names of other members and nothing else.
func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	m, ok := a.files[path.Clean(name)]
	for hops := 0; ok && m.link != "" && hops < 8; hops++ {
		m, ok = a.files[m.link]
	}
	if !ok || m.link != "" {
		return nil, 0, fs.ErrNotExist
	}
	return io.NopCloser(io.NewSectionReader(a.f, m.at, m.size)), m.size, nil
}

// saved is an entry of manifest.json.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// read finds an image by manifest.json. Its layers have no digests but those of
// the configuration, whose own digest is therefore what pins the image.
func (a *archive) read(name string) (*Image, error) {
	b, err := readDocument(a, "manifest.json")
	if err != nil {
		return nil, err
	}
	var list []saved
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, invalid("its manifest.json is no JSON: %v", err)
	}
	one, err := pick(list, name)
	if err != nil {
		return nil, err
	}
	config, err := readDocument(a, one.Config)
	if err != nil {
		return nil, err
	}
	img := &Image{Digest: digestOf(config)}
	var diffIDs []string
	if img.Config, diffIDs, err = ParseConfig(config); err != nil {
		return nil, err
	}
	if len(one.Layers) != len(diffIDs) {
		return nil, invalid("it lists %d layers, its configuration %d", len(one.Layers), len(diffIDs))
	}
	for i, file := range one.Layers {
		_, size, err := a.open(file)
		if err != nil {
			return nil, invalid("it has no file %.80q", file)
		}
		img.Size += size
		img.Layers = append(img.Layers, fstree.Blob{DiffID: diffIDs[i], Size: size, Open: func() (io.ReadCloser, error) {
			r, _, err := a.open(file)
			return r, err
		}})
	}
	return img, nil
}

// pick finds the one image that is called name.
func pick(list []saved, name string) (saved, error) {
	var have []string
	for _, s := range list {
		have = append(have, s.RepoTags...)
		if name != "" && slices.ContainsFunc(s.RepoTags, func(t string) bool { return t == name || strings.TrimSuffix(t, ":latest") == name }) {
			return s, nil
		}
	}
	have = have[:min(len(have), 12)]
	switch {
	case name == "" && len(list) == 1:
		return list[0], nil
	case name != "":
		return saved{}, notFound("it has "+quoteAll(have), "it has no image %.80q", name)
	case len(list) == 0:
		return saved{}, notFound("check that it is whole", "it holds no image")
	}
	return saved{}, invalid("it has several images: name one of %s", quoteAll(have))
}
