// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"archive/tar"
	"context"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// changeRoot changes the root in every way that a template's step may.
const changeRoot = `cd /data &&
echo made >made && chmod 640 made && chown 7:8 made && touch -d @1000000000 made && ln made again && ln -s made led &&
echo closed >closed && chmod 600 closed && chown 4242:4242 closed &&
echo more >>roots && rm small && rm -r own && mkdir own && echo alone >own/only &&
mkdir -p deep/er && chmod 700 deep && echo x >/tmp/mine && echo x >/dev/shm/mine && (echo x >/workspace/mine || echo kept)`

// testChangesOfRoot: what root changed over the root file system is told with owners, times
// and the content of every file, and without what is mounted in it.
func testChangesOfRoot(t *testing.T, s *suite, _ road) {
	if !s.caps.Root || !s.caps.Changes {
		s.lacks(t, "no root of its own")
	}
	ctx := timeout(t)
	dir := tree(t, s)
	w := s.imageFixture(t, mount(t, dir, "/workspace", sandbox.ReadOnly), func(spec *sandbox.Spec) {
		spec.Sudo, spec.RootChanges, spec.RootSize = true, true, 32*mib
	})
	inst, c := s.live(t, ctx, w)
	defer inst.Destroy(context.WithoutCancel(ctx))
	defer c.Close()
	if got := says(t, ctx, w, c, sandbox.ProgramDir+"/sudo sh -c '"+changeRoot+"' 2>&1"); !strings.HasSuffix(got, "kept") {
		t.Fatalf("%q", got)
	}
	got, err := readChanges(t, inst, "/")
	if err != nil {
		t.Fatal(err)
	}
	made := change{kind: tar.TypeReg, mode: 0o640, content: "made\n", uid: 7, gid: 8}
	for name, want := range map[string]change{
		"data/made": made, "data/again": made, "data/led": {kind: tar.TypeSymlink, content: "made"},
		"data/closed": {kind: tar.TypeReg, mode: 0o600, content: "closed\n", uid: 4242, gid: 4242},
		"data/roots":  {kind: tar.TypeReg, mode: 0o600, content: "more\n"},
		"data/small":  {kind: tar.TypeChar, removed: true},
		"data/own":    {kind: tar.TypeDir, mode: 0o755, opaque: true}, "data/own/only": {kind: tar.TypeReg, mode: 0o644, content: "alone\n"},
		"data/deep": {kind: tar.TypeDir, mode: 0o700}, "data/deep/er": {kind: tar.TypeDir, mode: 0o755},
	} {
		is := got[name]
		if strings.HasSuffix(name, "made") || strings.HasSuffix(name, "again") {
			want.mtime = 1000000000
		} else {
			is.mtime = 0
		}
		if is.kind == tar.TypeSymlink || is.removed {
			is.mode = 0
		}
		is.opaque = is.opaque && want.opaque // nothing lies below a new directory, whatever is said
		if is != want {
			t.Errorf("%s is %+v, want %+v", name, is, want)
		}
	}
	for name := range got {
		for _, mounted := range []string{"tmp", "dev", "proc", "sys", "workspace"} {
			if sandbox.Within("/"+name, "/"+mounted) {
				t.Errorf("the layer has %q, where something is mounted", name)
			}
		}
		if strings.HasSuffix(name, "mine") {
			t.Errorf("the layer has %q", name)
		}
	}
	says(t, ctx, w, c, sandbox.ProgramDir+"/sudo sh -c 'rm /data/made /data/again'")
	if got, err = readChanges(t, inst, "/"); err != nil || got["data/made"].kind != 0 || got["data/own/only"].content != "alone\n" {
		t.Errorf("once more: %v, %v", got, err)
	}
}
