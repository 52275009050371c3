// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// A container image is one EROFS file, which gVisor's kernel mounts itself as
// the root. The shim opens it through the descriptor that it was handed, so the
// very file that was checked is what is mounted. Where nothing of the host is
// mounted besides, there is no gofer at all: a process less to start, and none
// that serves files of the host.

// rootAnnotation begins the annotations that tell gVisor of another root.
const rootAnnotation = "dev.gvisor.spec.rootfs."

// rootImage makes the image the root.
func (p *plan) rootImage(s *sandbox.Spec, img *sandbox.Image) {
	p.erofs = true
	p.files[0] = sandbox.Mount{Source: img.EROFS, Name: "the image", Target: "/"}
	// A directory must be said; nothing is mounted from it.
	p.oci.Root = &specs.Root{Path: s.StateDir, Readonly: true}
	p.oci.Annotations[rootAnnotation+"type"] = "erofs"
	p.oci.Annotations[rootAnnotation+"source"] = "fd:" + strconv.Itoa(protocol.FirstFile)
}

// imageLayer lays the root's layer over an image: gVisor takes what is said of the root
// file system from its annotations then, and not from its flag.
func (p *plan) imageLayer(s *sandbox.Spec) {
	if !p.erofs {
		return
	}
	p.oci.Annotations[rootAnnotation+"overlay"] = "dir=" + s.StateDir
	if s.RootSize > 0 {
		p.oci.Annotations[rootAnnotation+"options"] = "size=" + strconv.FormatInt(s.RootSize, 10)
	}
}
