// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/json"
	"fmt"
	"path"
	"runtime"
	"strings"

	"github.com/caisson-run/caisson/image/fstree"
)

// Config is what an image says of how it is to be run.
type Config struct {
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	Env        []string `json:"env,omitempty"` // NAME=VALUE
	User       string   `json:"user,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"` // absolute and clean, or empty

	// Start is a line for a shell that a persistent sandbox begins with, and Ready one
	// that succeeds once that can be used. Templates alone have them.
	Start string `json:"start,omitempty"`
	Ready string `json:"ready,omitempty"`
	// Warmup is Python that is run once before the memory of such a sandbox is kept.
	Warmup string `json:"warmup,omitempty"`
}

// document is the JSON of a configuration, as far as it is of interest.
type document struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Config       struct {
		User       string
		Env        []string
		Entrypoint []string
		Cmd        []string
		WorkingDir string
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// Bounds of what a configuration hands to programs.
const (
	maxWords     = 4096
	maxWordBytes = 256 << 10
)

// ParseConfig reads a configuration and gives the digests of its layers
// without compression.
func ParseConfig(b []byte) (Config, []string, error) {
	var d document
	if len(b) > maxDocument {
		return Config{}, nil, invalid("its configuration is larger than %d bytes", maxDocument)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return Config{}, nil, invalid("its configuration is no JSON: %v", err)
	}
	if d.OS != "" && d.OS != "linux" || d.Architecture != "" && d.Architecture != runtime.GOARCH {
		return Config{}, nil, invalid("it is made for %.40q, and this host runs %s", d.OS+"/"+d.Architecture, Platform())
	}
	if len(d.RootFS.DiffIDs) > maxLayers {
		return Config{}, nil, invalid("it has %d layers, the most is %d", len(d.RootFS.DiffIDs), maxLayers)
	}
	for _, id := range d.RootFS.DiffIDs {
		if !fstree.IsDigest(id) {
			return Config{}, nil, invalid("%.80q is no digest of a layer", id)
		}
	}
	c := Config{Entrypoint: d.Config.Entrypoint, Cmd: d.Config.Cmd, Env: d.Config.Env, User: d.Config.User}
	if wd := d.Config.WorkingDir; wd != "" {
		c.WorkingDir = path.Clean("/" + wd)
	}
	return c, d.RootFS.DiffIDs, c.check()
}

// check refuses what cannot be handed to a program.
func (c Config) check() error {
	words, size := 0, 0
	for what, list := range map[string][]string{"entrypoint": c.Entrypoint, "command": c.Cmd, "environment": c.Env, "user": {c.User}, "working directory": {c.WorkingDir}} {
		for _, s := range list {
			words++
			size += len(s)
			if strings.ContainsRune(s, 0) {
				return invalid("its %s holds a NUL byte", what)
			}
		}
	}
	if words > maxWords || size > maxWordBytes {
		return invalid("its configuration hands over %d words of %d bytes", words, size)
	}
	for _, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return invalid("its environment holds %.80q, which is not NAME=VALUE", e)
		}
	}
	if len(c.WorkingDir) > 4095 || len(c.User) > 256 || strings.ContainsFunc(c.User+c.WorkingDir, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
		return invalid("its user or working directory is too long or holds control characters")
	}
	return nil
}

// blobs pairs the layers of a manifest with the digests of a configuration.
func blobs(manifest []descriptor, diffIDs []string) ([]fstree.Blob, int64, error) {
	if len(manifest) != len(diffIDs) {
		return nil, 0, invalid("its manifest has %d layers, its configuration %d", len(manifest), len(diffIDs))
	}
	var out []fstree.Blob
	var total int64
	for i, d := range manifest {
		if !fstree.IsDigest(d.Digest) || d.Size < 0 || d.Size > 1<<40 {
			return nil, 0, invalid("a layer of %d bytes has the digest %.80q", d.Size, d.Digest)
		}
		if !isLayer(d.MediaType) {
			return nil, 0, invalid("a layer is of the type %.80q", d.MediaType)
		}
		out = append(out, fstree.Blob{Digest: d.Digest, DiffID: diffIDs[i], Size: d.Size})
		total += d.Size
	}
	return out, total, nil
}

// isLayer takes the types whose contents a registry itself has: those called
// foreign or nondistributable lie at addresses that the image names.
func isLayer(mediaType string) bool {
	switch mediaType {
	case "application/vnd.docker.image.rootfs.diff.tar", "application/vnd.docker.image.rootfs.diff.tar.gzip",
		"application/vnd.docker.image.rootfs.diff.tar.zstd", "application/vnd.oci.image.layer.v1.tar",
		"application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.oci.image.layer.v1.tar+zstd":
		return true
	}
	return false
}

// descriptor points to a document or layer (OCI image spec, descriptor.md).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
	Platform    *struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// runsHere says whether d is, or may be, for this host.
func (d descriptor) runsHere() bool {
	return d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH
}

// manifest is an image's, or an index of several (then Manifests is set).
type manifest struct {
	MediaType string       `json:"mediaType"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
	Manifests []descriptor `json:"manifests"`
}

func parseManifest(b []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return m, invalid("its manifest is no JSON: %v", err)
	}
	if len(m.Layers) > maxLayers || len(m.Manifests) > 10_000 {
		return m, invalid("its manifest has %d layers and %d images", len(m.Layers), len(m.Manifests))
	}
	return m, nil
}

// String is for records: what the image runs when nothing else is said.
func (c Config) String() string { return fmt.Sprint(append(c.Entrypoint, c.Cmd...)) }
