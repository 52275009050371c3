// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"archive/tar"
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/session/persistent"
)

// A template of a key is the same root on each level: its files and home, its variables, its
// user and where programs begin. What it starts runs when the sandbox is handed out.
func TestTemplate(t *testing.T) {
	for _, level := range []string{"gvisor", "process", "docker"} {
		t.Run(level, func(t *testing.T) {
			if level == "docker" {
				startEngine(t)
			}
			templateOn(t, level)
		})
	}
}

func templateOn(t *testing.T, level string) {
	dir := filepath.Join(t.TempDir(), "state")
	l := openLiving(t, dir, level, func(o *persistent.SandboxesOptions) { o.EndOnClose = true })
	images, err := image.OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := images.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	files := imagetest.Layer(t, "tmp/", "etc/", "etc/passwd=root:x:0:0::/root:/bin/sh\napp:x:1234:1235::/srv/app:/bin/sh\n", "etc/group=root:x:0:\nstaff:x:1235:\n",
		"home/", "home/user/", "home/user/note=of the template\n", "made=here\n", "to-made->made", "srv/", "srv/app/",
		tar.Header{Typeflag: tar.TypeReg, Name: "srv/app/own", Mode: 0o600, Uid: 1234, Gid: 1235})
	for _, layer := range [][]byte{imagetest.Programs(t, "sh", "sleep", "cat", "id"), files} {
		if err := b.Put(t.Context(), bytes.NewReader(layer)); err != nil {
			t.Fatal(err)
		}
	}
	built, err := b.Finish(t.Context(), "sha256:"+strings.Repeat("1", 64), image.Config{
		Env: []string{"PATH=/usr/bin:/bin", "MODE=of the template"}, User: "app", WorkingDir: "/srv/app", Start: "echo started $MODE >/tmp/started; sleep 1000", Ready: "test -s /tmp/started",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := images.Name(reference.Ref{Kind: reference.Template, Name: "mine", Tag: "default"}, l.key.ID, built); err != nil {
		t.Fatal(err)
	}
	s, err := l.Create(t.Context(), l.key, persistent.Create{Template: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"cat /to-made ~/note /tmp/started":                "here\nof the template\nstarted of the template",
		"pwd; echo $MODE; echo ${PATH#/opt/caisson/bin:}": "/srv/app\nof the template\n/usr/bin:/bin",
		"id -un; id -u; id -g":                            "app\n1234\n1235",
		"cat own && echo its user reads what is its own":  "its user reads what is its own",
		"echo x 2>/dev/null >/made || echo refused":       "refused",
		"echo x >~/other && cat ~/other":                  "x",
	} {
		if got := l.sh(t, s.ID, command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}
