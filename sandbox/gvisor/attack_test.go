// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// Attacks of code inside, judged by what they do to the host or to a canary.
// With the capabilities of a user namespace of its own, code could lay an
// overlay over a directory and look below what hides a part of it.
func TestMasksHoldAgainstMounting(t *testing.T) {
	for _, access := range []sandbox.Access{sandbox.ReadOnly, sandbox.CopyOnWrite, sandbox.ReadWrite} {
		t.Run(access.String(), func(t *testing.T) {
			dir := project(t)
			spec := fixture(t)
			spec.Mounts = []sandbox.Mount{{Source: handle(t, dir), Name: dir, Target: "/home/user/p", Access: access, Dir: true}}
			spec.Masks = []sandbox.Mask{{Target: "/home/user/p/.env"}, {Target: "/home/user/p/private", Dir: true}}
			got := sh(t, spec, `cat > /tmp/try <<'X'
mkdir -p /tmp/u /tmp/w /tmp/m
umount /home/user/p/.env; umount -l /home/user/p/private
mount --bind /home/user/p /tmp/m; cat /tmp/m/.env /tmp/m/private/key
mount -t overlay -o lowerdir=/home/user/p,upperdir=/tmp/u,workdir=/tmp/w none /tmp/m; cat /tmp/m/.env /tmp/m/private/key
X
sh /tmp/try; unshare -Urm sh /tmp/try; unshare -r true; echo done`)
			if strings.Contains(got, "canary") || !strings.HasSuffix(got, "done\n") {
				t.Errorf("hidden content came out, or the script did not end: %q", got)
			}
			if !strings.Contains(got, "unshare failed: Operation not permitted") {
				t.Errorf("a user namespace was had: %q", got)
			}
		})
	}
}

// Two mounts show the same directory: what is renamed through one of them
// must not uncover what is hidden in the other.
func TestMasksHoldAgainstRenamingThroughAnotherMount(t *testing.T) {
	dir := project(t)
	if err := os.CopyFS(filepath.Join(dir, "sub/deep"), os.DirFS(project(t))); err != nil {
		t.Fatal(err)
	}
	own(t, dir)
	spec := fixture(t)
	spec.Mounts = []sandbox.Mount{
		{Source: handle(t, dir), Name: dir, Target: "/home/user/p", Access: sandbox.ReadWrite, Dir: true},
		{Source: handle(t, filepath.Join(dir, "sub")), Name: "sub", Target: "/x", Access: sandbox.ReadWrite, Dir: true},
	}
	for _, d := range []string{"/home/user/p/sub/deep", "/x/deep"} {
		spec.Masks = append(spec.Masks, sandbox.Mask{Target: d + "/.env"}, sandbox.Mask{Target: d + "/private", Dir: true})
	}
	got := sh(t, spec, `mv /x/deep /x/moved; d=p/sub/moved
ls p/sub; cat p/sub/deep/data.csv $d/data.csv; cat $d/.env $d/private/key
mv $d p/sub/deep; cat /x/deep/.env /x/deep/private/key p/sub/deep/private/key; echo done`)
	if strings.Contains(got, "canary") || !strings.HasSuffix(got, "done\n") {
		t.Errorf("hidden content came out, or the script did not end: %q", got)
	}
}

// Without a memory cgroup, what code makes the kernel inside hold counts too.
func TestKernelMemoryCountsWithoutAControlGroup(t *testing.T) {
	spec := fixture(t)
	res, err := gvisor.New(gvisor.Options{NoCgroups: true}).Run(t.Context(), spec, &sandbox.Exec{
		Argv: []string{"python3", "-c", `
import socket
full, kept = 0, []
while full < 2 << 30:
    a, b = socket.socketpair()
    kept.append((a, b))
    a.setblocking(False)
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 20)
    try:
        while True: full += a.send(bytes(65536))
    except BlockingIOError: pass
`}, Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != sandbox.StatusResourceExceeded || res.Resource != sandbox.LimitMemory {
		t.Errorf("2 GiB in socket buffers with 256 MiB of memory: %+v", res)
	}
}
