// SPDX-License-Identifier: Apache-2.0

//go:build linux

package session

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/sandbox"
)

// onImage is the environment that a call gets on an image, on a level that takes
// images as a directory or, with erofs, as one file.
func onImage(t *testing.T, c imagetest.Config, erofs bool, change func(*Call)) (sandbox.Spec, sandbox.Exec, audit.Call, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	imagetest.New(t, c, imagetest.Layer(t, "etc/", "etc/passwd=root:x:0:0::/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\napp:x:77:78::/srv:/bin/sh\n", "srv/app/")).Layout(dir)
	var spec sandbox.Spec
	var exec sandbox.Exec
	d := &stub{caps: func(c *sandbox.Capabilities) { c.Root, c.Images, c.EROFS = true, true, erofs }}
	d.prog = func(_ context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
		spec, exec = *s, *x
		return exited(0), nil
	}
	b := newBench(t, d, nil)
	res, err := b.Do(t.Context(), call(t, func(c *Call) {
		c.Rootfs, c.Image = "", dir
		if change != nil {
			change(c)
		}
	}), IO{})
	if err == nil && res.Status != sandbox.StatusSuccess {
		err = errors.New(res.Reason)
	}
	var record audit.Call
	for r, qerr := range b.log.Query(t.Context(), audit.Filter{Limit: 1}) {
		if qerr != nil {
			t.Fatal(qerr)
		}
		if r.Call != nil {
			record = *r.Call
		}
	}
	return spec, exec, record, err
}

// TestImageStays removes all images when a call's was found: what the call is to run
// on stays until its end.
func TestImageStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layout")
	img := imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "etc/", "home/", "home/user/", "home/user/hidden=1"))
	img.Layout(dir)
	d := &stub{caps: func(c *sandbox.Capabilities) { c.Images = true }}
	d.prog = func(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error) { return exited(0), nil }
	b := newBench(t, d, nil)
	s, err := image.OpenStore(b.Images())
	if err != nil {
		t.Fatal(err)
	}
	told := false
	_, err = b.Do(t.Context(), call(t, func(c *Call) {
		c.Rootfs, c.Image, c.Argv = "", dir, []string{"a"}
		c.OnNotice = func(string) { // the image's own, of what is hidden
			told = true
			if gone, err := s.Prune(true); err != nil || len(gone) > 0 {
				t.Errorf("removed while it was used: %v, %v", gone, err)
			}
		}
	}), IO{})
	if err != nil || !told {
		t.Errorf("%v, told: %t", err, told)
	}
	if gone, err := s.Prune(true); err != nil || len(gone) != 1 {
		t.Errorf("removed afterwards: %v, %v", gone, err)
	}
}

func TestImageRules(t *testing.T) {
	config := imagetest.Config{User: "app", Env: []string{"PATH=/opt/bin:/bin", "MODE=image", "LANG=de_DE.UTF-8", "HOME=/evil"}, WorkingDir: "/srv/app",
		Entrypoint: []string{"/entry", "-x"}, Cmd: []string{"cmd"}}
	sh, none := "/bin/sh", ""
	app := sandbox.User{UID: 77, GID: 78, Name: "app", Home: "/home/user"}
	tests := []struct {
		name   string
		config imagetest.Config
		change func(*Call)
		argv   string
		user   sandbox.User
		dir    string
	}{
		{"arguments take the cmd's place", config, func(c *Call) { c.Argv = []string{"a"} }, "/entry -x a", app, "/srv/app"},
		{"no arguments", config, func(c *Call) { c.Argv = nil }, "/entry -x cmd", app, "/srv/app"},
		{"another entrypoint", config, func(c *Call) { c.Argv, c.Entrypoint = []string{"a"}, &sh }, "/bin/sh a", app, "/srv/app"},
		{"no entrypoint", config, func(c *Call) { c.Argv, c.Entrypoint = []string{"a"}, &none }, "a", app, "/srv/app"},
		{"root", config, func(c *Call) { c.Argv, c.Root = []string{"a"}, true }, "/entry -x a", sandbox.RootUser(), "/srv/app"},
		{"a working directory", config, func(c *Call) { c.Argv, c.Cwd = []string{"a"}, "/data" }, "/entry -x a", app, "/data"},
		{"source", config, func(c *Call) { c.Argv, c.Source = []string{"a"}, &Source{Language: "python", Code: []byte("1")} }, "python3 /home/user/main.py a", app, "/srv/app"},
		{"the image's root is nobody special", imagetest.Config{User: "root"}, func(c *Call) { c.Argv = []string{"a"} }, "a",
			sandbox.User{UID: 1000, GID: 1001, Name: "node", Home: "/home/user"}, "/home/user"},
		{"a directory that the home hides", imagetest.Config{WorkingDir: "/home/user/app"}, func(c *Call) { c.Argv = []string{"a"} }, "a",
			sandbox.User{UID: 1000, GID: 1001, Name: "node", Home: "/home/user"}, "/home/user"},
	}
	for _, tt := range tests {
		for _, erofs := range []bool{false, true} {
			s, x, record, err := onImage(t, tt.config, erofs, tt.change)
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			if got := strings.Join(x.Argv, " "); got != tt.argv || s.User != tt.user || x.Dir != tt.dir {
				t.Errorf("%s: %q as %+v in %s, want %q as %+v in %s", tt.name, got, s.User, x.Dir, tt.argv, tt.user, tt.dir)
			}
			if img := s.Root.Image; img == nil || (img.EROFS != nil) != erofs || (s.Root.Dir != nil) == erofs || !strings.HasSuffix(record.Image, "@"+img.Digest) {
				t.Errorf("%s: root %+v, record %q", tt.name, s.Root, record.Image)
			}
		}
	}
}

func TestImageEnvironment(t *testing.T) {
	_, x, _, err := onImage(t, imagetest.Config{Env: []string{"PATH=/opt/bin:/bin", "MODE=image", "LANG=de_DE.UTF-8", "HOME=/evil", "KEPT=1"}}, true,
		func(c *Call) { c.Argv, c.Env = []string{"a"}, map[string]string{"MODE": "call"} })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"GOMAXPROCS=1", "HOME=/home/user", "KEPT=1", "LANG=de_DE.UTF-8", "LOGNAME=node", "MODE=call",
		"NODE_OPTIONS=--max-old-space-size=192", "OMP_NUM_THREADS=1", "PATH=/opt/bin:/bin", "USER=node"}
	if diff := cmp.Diff(want, x.Env); diff != "" {
		t.Error(diff)
	}
}

func TestImageRefusals(t *testing.T) {
	for name, change := range map[string]func(*Call){
		"nothing to run": func(c *Call) { c.Argv = nil },
		"no such file":   func(c *Call) { c.Image = "/no/such/image" },
	} {
		if _, _, _, err := onImage(t, imagetest.Config{}, true, change); err == nil || sandbox.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A level that takes none says so; a plain directory is a root for all.
	dir := filepath.Join(t.TempDir(), "layout")
	imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "a=1")).Layout(dir)
	b := newBench(t, &stub{}, nil)
	if _, err := b.Do(t.Context(), call(t, func(c *Call) { c.Rootfs, c.Image = "", dir }), IO{}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("a level without images: %v", err)
	}
	d := &stub{}
	b = newBench(t, d, nil)
	plain := tree(t)
	if res, err := b.Do(t.Context(), call(t, func(c *Call) { c.Rootfs, c.Image = "", plain }), IO{}); err != nil || res.Status != sandbox.StatusSuccess {
		t.Errorf("a plain directory: %+v, %v", res, err)
	} else if d.spec.Root.Image != nil || d.spec.Root.Dir == nil {
		t.Errorf("a plain directory became %+v", d.spec.Root)
	}
	if _, err := b.Do(t.Context(), call(t, func(c *Call) { c.Entrypoint = new(string) }), IO{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("an entrypoint without an image: %v", err)
	}
}
