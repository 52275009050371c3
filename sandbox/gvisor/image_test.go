// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// imageRoot is a small image as the root of a sandbox.
func imageRoot(t *testing.T) sandbox.Root {
	t.Helper()
	dir := t.TempDir()
	imagetest.New(t, imagetest.Config{}, imagetest.Programs(t, "sh")).Layout(filepath.Join(dir, "layout"))
	store, err := image.OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := reference.Parse(filepath.Join(dir, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := store.Get(t.Context(), ref, image.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	root, err := store.Root(t.Context(), info, image.RootOptions{EROFS: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root.Sandbox()
}

// TestImageNeedsNoGofer wants the kernel alone where nothing of the host is
// mounted, with nothing of the host's files but the image.
func TestImageNeedsNoGofer(t *testing.T) {
	spec := fixture(t)
	spec.Root = imageRoot(t)
	spec.Hostname, spec.MachineID = "sandbox-x", strings.Repeat("1", 32) // its files are the kernel's own
	processes := whileRunning(t, spec)
	if _, ok := processes["runsc-gofer"]; ok {
		t.Error("there is a gofer")
	}
	got, ok := processes["runsc-sandbox"]
	if !ok {
		t.Fatal("there is no kernel")
	}
	if len(got.Foreign) != 1 || !strings.HasSuffix(got.Foreign[0], "/root.erofs") || !got.Filters || !got.Private || got.NoNewPrivs != "1" {
		t.Errorf("%+v", got)
	}
	// A mount brings the gofer back, and the image stays the root.
	spec = fixture(t)
	spec.Root = imageRoot(t)
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	spec.Mounts = []sandbox.Mount{{Source: f, Name: dir, Target: "/workspace", Dir: true}}
	if _, ok := whileRunning(t, spec)["runsc-gofer"]; !ok {
		t.Error("there is a mount and no gofer")
	}
}

// TestImageScratchIsBounded fills scratch that lies in files which no gofer
// has made: it is on the disk, not in the program's memory, and bounded.
func TestImageScratchIsBounded(t *testing.T) {
	spec := fixture(t)
	spec.Root = imageRoot(t)
	spec.Limits.Memory = 64 << 20
	for i := range spec.Scratch {
		if spec.Scratch[i].Target == "/tmp" {
			spec.Scratch[i].Size = 96 << 20
		}
	}
	var said bytes.Buffer
	res, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Dir: "/", Env: []string{"PATH=/bin"}, Stderr: &said, Argv: []string{"sh", "-c", `b=xxxxxxxxxxxxxxxx; b=$b$b$b$b; b=$b$b$b$b; b=$b$b$b$b; b=$b$b$b$b; b=$b$b$b$b; b=$b$b$b$b; i=0
while [ $i -lt 2000 ] && echo "$b" 2>/dev/null; do i=$((i+1)); done > /tmp/f; echo $i >&2`}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Resource != "" || res.ExitCode == nil {
		t.Fatalf("%+v, %q", res, said.String())
	}
	n := strings.TrimSpace(said.String())
	if len(n) != 4 || n < "1300" || n > "1536" {
		t.Errorf("%s times 64 KiB were written to 96 MiB", n)
	}
}
