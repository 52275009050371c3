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
				for end := time.After(2 * time.Minute); c.Pools()[0].Waiting < 1; {
					select {
					case <-end:
						t.Fatalf("%+v", c.Pools())
					case <-time.After(time.Millisecond):
					}
				}
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
