// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/template"
)

// Builds in a row leave no more and more files, open files or goroutines in the process that
// has them run. CAISSON_TEST_BUILDS is how many.
func TestBuildsInARow(t *testing.T) {
	times := 3
	if n, err := strconv.Atoi(os.Getenv("CAISSON_TEST_BUILDS")); err == nil {
		times = n
	}
	dir := filepath.Join(t.TempDir(), "state")
	l := openLiving(t, dir, "gvisor", func(o *persistent.SandboxesOptions) {
		file, err := policy.Parse("test.yaml", []byte("version: 1\nuser: sudoer\n"))
		if err != nil {
			t.Fatal(err)
		}
		o.Policies = map[string]*policy.File{"": file}
	})
	l.baseTemplate(t)
	build := func() {
		of := l.TemplatesOf(l.key)
		b, err := of.Begin("mine", nil)
		if err == nil {
			err = of.Run("mine", b.ID, persistent.BuildWish{From: template.Base{Kind: template.Template, Name: "base"}, NoCache: true, Steps: []template.RawStep{
				{Type: "RUN", Args: []string{"cat /proc/sys/kernel/random/uuid >/made", "root"}},
				{Type: "WORKDIR", Args: []string{"/srv"}}, // results of later steps stay until there are 200: image.TestStepsAreBounded
			}})
		}
		for ; err == nil && b.State != persistent.BuildReady; <-time.After(5 * time.Millisecond) {
			if b, err = of.Build("mine", b.ID); err == nil {
				err = b.Err
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	build()
	build() // the first has no image that gives way to it
	before := takenBy(t, dir)
	for range times {
		build()
	}
	for late := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		after := takenBy(t, dir)
		if after.files <= before.files && after.open <= before.open && after.goroutines <= before.goroutines {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%d builds later: %+v, before: %+v", times, after, before)
		}
	}
}

// baseTemplate gives the key a template of a few programs.
func (l *living) baseTemplate(t *testing.T) {
	t.Helper()
	images, err := image.OpenStore(filepath.Join(l.dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := images.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Put(t.Context(), bytes.NewReader(imagetest.Programs(t, "bash", "cat"))); err != nil {
		t.Fatal(err)
	}
	built, err := b.Finish(t.Context(), "sha256:"+strings.Repeat("1", 64), image.Config{})
	if err == nil {
		err = images.Name(reference.Ref{Kind: reference.Template, Name: "base", Tag: "default"}, l.key.ID, built)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// taken is what could grow.
type taken struct{ files, open, goroutines int }

// takenBy counts the files of the state directory but for the record, and what this process has.
func takenBy(t *testing.T, dir string) (n taken) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what goes meanwhile does not count
		if err == nil && !strings.HasPrefix(path, filepath.Join(dir, "audit")) {
			n.files++
		}
		return nil
	})
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n.open, n.goroutines = len(open), runtime.NumGoroutine()
	return n
}
