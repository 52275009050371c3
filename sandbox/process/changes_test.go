// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// changing is a fixture with a directory mounted copy-on-write at /tmp/w, and what its
// layer holds when a run has ended.
func changing(t *testing.T) (spec *sandbox.Spec, got *[]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"kept": "1", "changed": "1", "gone": "1", "d/old": "1"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	spec = fixture(t)
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: f, Name: dir, Target: "/tmp/w", Dir: true, Access: sandbox.CopyOnWrite})
	got = new([]string)
	spec.OnChanges = func(target string, layer io.Reader) error {
		if target != "/tmp/w" {
			t.Errorf("a layer of %s", target)
		}
		*got = listed(t, layer)
		return nil
	}
	return spec, got
}

// listed says what a tar stream has, in a line each.
func listed(t *testing.T, layer io.Reader) (lines []string) {
	t.Helper()
	for r := tar.NewReader(layer); ; {
		h, err := r.Next()
		if err == io.EOF {
			slices.Sort(lines)
			return lines
		}
		if err != nil {
			t.Error(err)
			return lines
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		line := strings.TrimSpace(fmt.Sprintf("%c %s %o %s%s", h.Typeflag, h.Name, h.Mode, text, h.Linkname))
		for _, k := range []string{"trusted", "user"} {
			if h.PAXRecords["SCHILY.xattr."+k+".overlay.opaque"] == "y" {
				line += " opaque"
			}
		}
		if h.Name == "e/" { // what is new hides nothing, whether it says so or not
			line = strings.TrimSuffix(line, " opaque")
		}
		lines = append(lines, line)
	}
}

const change = `umask 022; cd /tmp/w; echo 2 >changed; rm gone; rm -r d; mkdir d; echo 2 >d/new; mkdir e; echo 2 >e/secret; chmod 0 e/secret; ln -s /etc e/link; ln changed twin; mkfifo pipe`

var changed = []string{"0 changed 644 2", "0 d/new 644 2", "0 e/secret 0 2", "1 twin 644 changed", "2 e/link 777 /etc", "3 gone 0", "5 d/ 755 opaque", "5 e/ 755"}

// What a program changed comes out when it has ended, however it ended, and none of it
// is on the host.
func TestChanges(t *testing.T) {
	for name, program := range map[string]string{"end": change, "killed": change + "; echo done; sleep 1000"} {
		t.Run(name, func(t *testing.T) {
			spec, got := changing(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, w := io.Pipe()
			go func() { // a time limit looks like this to a level
				if _, err := r.Read(make([]byte, 16)); err == nil {
					cancel()
				}
				r.Close()
			}()
			_, err := process.New(process.Options{}).Run(ctx, spec, &sandbox.Exec{Argv: []string{"/bin/sh", "-c", program}, Dir: "/", Stdout: w})
			w.Close()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(*got, changed) {
				t.Errorf("the layer has\n%s\nand not\n%s", strings.Join(*got, "\n"), strings.Join(changed, "\n"))
			}
		})
	}
}

// A living sandbox stands still while its changes are read, and goes on.
func TestReadChanges(t *testing.T) {
	spec, _ := changing(t)
	box, err := process.New(process.Options{}).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Destroy(context.Background())
	read := box.(sandbox.ChangeReader)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		r, w := io.Pipe()
		go func() { w.CloseWithError(read.ReadChanges(ctx, "/tmp/w", w)) }()
		if got := listed(t, r); len(got) != 0 {
			t.Errorf("nothing was changed, and the layer has %q", got)
		}
	}
	if err := read.ReadChanges(ctx, "/tmp", io.Discard); err == nil {
		t.Error("/tmp is not mounted copy-on-write, and has changes")
	}
}
