// SPDX-License-Identifier: Apache-2.0

package image

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// A toolchain is copied without what not everybody may read, unless it is packed already.
func TestPackHostToolchains(t *testing.T) {
	rest(t, 50*time.Millisecond)
	host, dir := packedHost(t), t.TempDir()
	inside, outside := handle(t, filepath.Join(host, "usr/lib")), handle(t, fakeHost(t, "bin/tool="))
	inside.Real, outside.Real = "/usr/lib", "/opt/tool"
	r, err := PackHost(t.Context(), HostOptions{root: host, Cache: dir + "/cache"}, PackOptions{Cache: dir + "/packs", Toolchains: []*hostpath.Source{inside, outside}})
	must(t, err)
	defer r.Close()
	if len(r.Path) < 2 || r.Path[0] != "/usr/lib" || r.Path[1] != "/opt/tool/bin" {
		t.Errorf("programs are searched in %q", r.Path)
	}
	if m := r.Mounts(); len(m) != 1 || m[0].Target != "/opt/tool" || !m[0].Public {
		t.Errorf("mounted are %+v, want /opt/tool alone, public", m)
	}
}
