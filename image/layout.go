// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// container is what holds documents and layers under names: a directory, or an
// archive.
type container interface {
	// open gives what is called name, and its size. fs.ErrNotExist is in the
	// chain of the error when there is no such file.
	open(name string) (io.ReadCloser, int64, error)
}

// Layout finds an image in an OCI image layout: the one called name, or where
// there is only one, that. The directory must stay open until the layers have
// been read.
func Layout(dir *os.Root, name string) (*Image, error) { return readLayout(directory{dir}, name) }

type directory struct{ *os.Root }

func (d directory) open(name string) (io.ReadCloser, int64, error) {
	f, err := d.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil && leadsOut(err) {
		return nil, 0, &sandbox.Error{Op: "read image", Kind: sandbox.ErrInvalid, Problem: name + " is a link that leads out of the directory",
			Hint: "copy what it leads to into the directory (cp -rL)"}
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = invalid("%s is no file", name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// leadsOut reports whether a file was not opened because its name leads out of the
// directory. Package os has no name for that error.
func leadsOut(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e) && e.Err.Error() == "path escapes from parent"
}

// document reads a small file.
func readDocument(c container, name string) ([]byte, error) {
	r, size, err := c.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound("check that it is whole", "it has no file %s", name)
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > maxDocument {
		return nil, invalid("%s is larger than %d bytes", name, maxDocument)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil || len(b) > maxDocument {
		return nil, invalid("%s cannot be read: %v", name, err)
	}
	return b, nil
}

// blobName is where a layout keeps what has a digest.
func blobName(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }

// readBlob reads a document by its digest.
func readBlob(c container, digest string) ([]byte, error) {
	if !fstree.IsDigest(digest) {
		return nil, invalid("%.80q is no digest", digest)
	}
	b, err := readDocument(c, blobName(digest))
	if err == nil && digestOf(b) != digest {
		return nil, invalid("a document is not what its digest %s promises", digest)
	}
	return b, err
}

const indexName = "index.json"

// readLayout follows index.json to the image.
func readLayout(c container, name string) (*Image, error) {
	b, err := readDocument(c, indexName)
	if err != nil {
		return nil, err
	}
	index, err := parseManifest(b)
	if err != nil {
		return nil, err
	}
	d, err := choose(index.Manifests, name)
	if err != nil {
		return nil, err
	}
	for range 3 { // an index may point to an index
		if b, err = readBlob(c, d.Digest); err != nil {
			return nil, err
		}
		m, err := parseManifest(b)
		if err != nil {
			return nil, err
		}
		if len(m.Manifests) == 0 {
			return fromManifest(c, d.Digest, m)
		}
		if d, err = choose(m.Manifests, ""); err != nil {
			return nil, err
		}
	}
	return nil, invalid("its indexes are nested too deeply")
}

// names are what an entry of an index is called.
func (d descriptor) names() []string {
	var out []string
	for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
		if s := d.Annotations[key]; s != "" {
			out = append(out, s)
		}
	}
	return append(out, d.Digest)
}

// choose finds the one entry that has the name and runs here.
func choose(list []descriptor, name string) (descriptor, error) {
	var fit []descriptor
	var have []string
	for _, d := range list {
		if d.Annotations["vnd.docker.reference.type"] == "attestation-manifest" || !d.runsHere() {
			continue
		}
		have = append(have, d.names()...)
		if name == "" || slices.Contains(d.names(), name) {
			fit = append(fit, d)
		}
	}
	have = have[:min(len(have), 12)]
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) == 0 && name != "":
		return descriptor{}, notFound("it has "+quoteAll(have), "it has no image %.80q for %s", name, Platform())
	case len(fit) == 0:
		return descriptor{}, notFound("get one that was built for this processor", "it has no image for %s", Platform())
	}
	return descriptor{}, invalid("it has several images: name one of %s", quoteAll(have))
}

// quoteAll lists names that an image chose.
func quoteAll(names []string) string {
	b, _ := json.Marshal(names)
	return string(b[:min(len(b), 1000)])
}

// fromManifest is the image of a manifest in a container.
func fromManifest(c container, digest string, m manifest) (*Image, error) {
	b, err := readBlob(c, m.Config.Digest)
	if err != nil {
		return nil, err
	}
	img := &Image{Digest: digest}
	var diffIDs []string
	if img.Config, diffIDs, err = ParseConfig(b); err != nil {
		return nil, err
	}
	if img.Layers, img.Size, err = blobs(m.Layers, diffIDs); err != nil {
		return nil, err
	}
	for i := range img.Layers {
		l := &img.Layers[i]
		name := blobName(l.Digest)
		l.Open = func() (io.ReadCloser, error) {
			r, _, err := c.open(name)
			return r, err
		}
	}
	return img, nil
}
