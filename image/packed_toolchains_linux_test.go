// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
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

// One that not everybody may look into is refused, and so is such a root: they would be empty.
func TestPackRefusesWhatWouldBeEmpty(t *testing.T) {
	rest(t, 50*time.Millisecond)
	host, dir := packedHost(t), t.TempDir()
	pack := func(tool *hostpath.Source) error {
		r, err := PackHost(t.Context(), HostOptions{root: host, Cache: dir + "/cache"}, PackOptions{Cache: dir + "/packs", Toolchains: []*hostpath.Source{tool}})
		if err == nil {
			r.Close()
		}
		return err
	}
	tool := handle(t, fakeHost(t, "bin/tool="))
	tool.Real = "/opt/tool"
	for mode, ok := range map[os.FileMode]bool{0o755: true, 0o700: false, 0o711: false, 0o744: false} {
		must(t, os.Chmod(tool.Name, mode))
		err := pack(tool)
		if ok != (err == nil) || !ok && (!errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), tool.Name) || !strings.Contains(sandbox.Hint(err), "chmod o+rx")) {
			t.Errorf("%o: %v", mode, err)
		}
	}
	root := fakeHost(t, "bin/sh=")
	must(t, os.Chmod(root, 0o700))
	if _, err := PackDir(t.Context(), handle(t, root), PackOptions{Cache: dir + "/packs"}); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(sandbox.Hint(err), "chmod o+rx") {
		t.Errorf("a root: %v", err)
	}
	// A toolchain behind a directory of the host's that was not looked into is no part of it.
	must(t, os.Mkdir(filepath.Join(host, "usr/private/tool"), 0o755))
	hidden := handle(t, filepath.Join(host, "usr/private/tool"))
	hidden.Real = "/usr/private/tool"
	r, err := PackHost(t.Context(), HostOptions{root: host, Cache: dir + "/cache"}, PackOptions{Cache: dir + "/packs", Toolchains: []*hostpath.Source{hidden}})
	must(t, err)
	defer r.Close()
	if m := r.Mounts(); len(m) != 1 || m[0].Target != "/usr/private/tool" {
		t.Errorf("mounted are %+v", m)
	}
}
