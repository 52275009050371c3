// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// template builds one called app of a few programs, with a text in /text.
func template(t *testing.T, state, digit, text string) {
	t.Helper()
	images, err := image.OpenStore(filepath.Join(state, "images"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := images.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, layer := range [][]byte{imagetest.Programs(t, "sh", "cat"), imagetest.Layer(t, "tmp/", "home/", "home/user/", "text="+text)} {
		if err := b.Put(t.Context(), bytes.NewReader(layer)); err != nil {
			t.Fatal(err)
		}
	}
	built, err := b.Finish(t.Context(), "sha256:"+strings.Repeat(digit, 64), image.Config{Entrypoint: []string{"/bin/sh", "-c"}, WorkingDir: "/tmp", Env: []string{"OF=image"}})
	if err == nil {
		err = images.Name(reference.Ref{Kind: reference.Template, Name: "app", Tag: "default"}, "", built)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A pool serves Create, too: by what is asked for, and each sandbox once.
func TestPoolForCreate(t *testing.T) {
	for _, level := range []string{"process", "gvisor"} {
		t.Run(level, func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			c, err := caisson.Open(t.Context(), caisson.Options{State: state})
			if err != nil {
				t.Fatal(err)
			}
			template(t, state, "1", "one")
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			plain := caisson.Create{Isolation: level}
			app := caisson.Create{Isolation: level, Image: "template:app", Limits: caisson.Limits{Processes: 100}}
			if c, err = caisson.Open(t.Context(), caisson.Options{State: state, Pools: []caisson.Pool{{Create: &plain, Ready: 1}, {Create: &app, Ready: 1}}}); err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			seen := map[string]bool{}
			create := func(w caisson.Create, line, want string, taken int64) {
				t.Helper()
				waitForPool(t, c, 1, 2)
				box, err := c.Create(t.Context(), w)
				if err != nil {
					t.Fatal(err)
				}
				defer box.Close()
				res, err := box.Exec(t.Context(), caisson.Exec{Command: []string{"sh", "-c", "cat /proc/sys/kernel/hostname; echo $A; [ -e mine ] || " + line + "; : >mine"}})
				if err != nil {
					t.Fatal(err)
				}
				name, rest, _ := strings.Cut(string(res.Stdout), "\n")
				if rest != w.Env["A"]+"\n"+want || seen[name] {
					t.Errorf("%+v: %q %q", res, name, rest)
				}
				seen[name] = true
				if s := c.Pools()[0]; s.Taken != taken {
					t.Errorf("%+v after %d", s, taken)
				}
			}
			create(plain, "echo fresh", "fresh\n", 1)
			plain.Env, plain.Timeout, plain.Actor = map[string]string{"A": "b"}, time.Hour, "agent"
			create(plain, "echo fresh", "fresh\n", 2)
			create(app, "cat /text; echo", "one\n", 3)
			app.Limits.Processes = 99
			create(app, "cat /text; echo", "one\n", 3)
			app.Limits.Processes = 100
			template(t, state, "2", "two")
			create(app, "cat /text; echo", "two\n", 3)
		})
	}
}

// What cannot be made ahead is refused by name.
func TestPoolForCreateRefuses(t *testing.T) {
	for want, p := range map[string]caisson.Pool{
		"files of the host's": {Create: &caisson.Create{Mounts: []caisson.Mount{{Source: t.TempDir()}}}},
		"129":                 {Create: &caisson.Create{}, Ready: 129},
		"age":                 {Create: &caisson.Create{}, MaxAge: time.Hour},
	} {
		c, err := caisson.Open(t.Context(), caisson.Options{State: filepath.Join(t.TempDir(), "state"), Pools: []caisson.Pool{p}})
		if err == nil {
			c.Close()
		}
		if err == nil || want != "129" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A pool serves requests of a template, with what its image says, and with none of what its
// name meant before.
func TestPoolOfTemplate(t *testing.T) {
	for _, level := range []string{"process", "gvisor"} {
		t.Run(level, func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			c, err := caisson.Open(t.Context(), caisson.Options{State: state})
			if err != nil {
				t.Fatal(err)
			}
			template(t, state, "1", "one")
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			r := caisson.Request{Isolation: level, Image: "template:app", Command: []string{"x"}}
			if c, err = caisson.Open(t.Context(), caisson.Options{State: state, Pools: []caisson.Pool{{For: r, Ready: 1}}}); err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			run := func(want string, taken int64) {
				t.Helper()
				waitForPool(t, c, 0, 1)
				r.Command = []string{"cat /text; echo; pwd; echo $OF"}
				res, err := c.Run(t.Context(), r)
				if err != nil || res.Status != sandbox.StatusSuccess || string(res.Stdout) != want+"\n/tmp\nimage\n" {
					t.Fatalf("%v, %+v: %q %q", err, res, res.Stdout, res.Stderr)
				}
				if s := c.Pools()[0]; s.Taken != taken {
					t.Errorf("%+v after %d", s, taken)
				}
			}
			run("one", 1)
			run("one", 2)
			template(t, state, "2", "two")
			run("two", 2)
		})
	}
}
