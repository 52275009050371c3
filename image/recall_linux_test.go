// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// notesOf are the notes in a cache, or "".
func notesOf(t *testing.T, cache string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(cache, ".etc-*"))
	must(t, err)
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// tick returns when the kernel gives files a later time than it gave dir.
func tick(t *testing.T, dir string) {
	t.Helper()
	before, err := os.Stat(dir)
	must(t, err)
	for f := filepath.Join(t.TempDir(), "f"); ; {
		must(t, os.WriteFile(f, nil, 0o600))
		if now, err := os.Stat(f); err != nil || now.ModTime().After(before.ModTime()) {
			must(t, err)
			return
		}
	}
}

// TestNotes changes a host that was surveyed, and compares what is shown with
// what is shown without notes.
func TestNotes(t *testing.T) {
	rest(t, 0)
	for name, change := range map[string]func(etc string) error{
		"nothing":          func(string) error { return nil },
		"another link":     func(etc string) error { return os.Symlink("/usr/bin/vi", filepath.Join(etc, "alternatives/vi")) },
		"a link led back":  func(etc string) error { return relink("/usr/bin/gawk", filepath.Join(etc, "alternatives/awk")) },
		"a link less":      func(etc string) error { return os.Remove(filepath.Join(etc, "alternatives/awk")) },
		"a link of /etc's": func(etc string) error { return relink("/usr/share/zoneinfo/CET", filepath.Join(etc, "localtime")) },
		"other contents": func(etc string) error {
			return os.WriteFile(filepath.Join(etc, "services"), []byte("ftp 21/tcp"), 0o644)
		},
		"contents far below": func(etc string) error {
			return os.WriteFile(filepath.Join(etc, "ssl/certs/a.pem"), []byte("more"), 0o644)
		},
		"made private":        func(etc string) error { return os.Chmod(filepath.Join(etc, "services"), 0o600) },
		"made public":         func(etc string) error { return os.Chmod(filepath.Join(etc, "ssl/certs/own.key"), 0o644) },
		"a private directory": func(etc string) error { return os.Chmod(filepath.Join(etc, "ssl/certs"), 0o700) },
		"a public directory":  func(etc string) error { return os.Chmod(filepath.Join(etc, "java-17-openjdk/hidden"), 0o755) },
		"another pattern's":   func(etc string) error { return os.Mkdir(filepath.Join(etc, "python3.12"), 0o755) },
		"beside on the way":   func(etc string) error { return os.WriteFile(filepath.Join(etc, "ssl/openssl.cnf"), []byte("x"), 0o644) },
		"a file for a link": func(etc string) error {
			at := filepath.Join(etc, "os-release")
			return must2(os.Remove(at), os.WriteFile(at, []byte("x"), 0o644))
		},
		"a link for a directory": func(etc string) error {
			return must2(os.Rename(filepath.Join(etc, "ssl"), filepath.Join(etc, "was")), os.Symlink("../root", filepath.Join(etc, "ssl")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := fakeHost(t, append(debian, "etc/java-17-openjdk/hidden/y=KEY")...)
			etc := filepath.Join(root, "etc")
			must(t, os.Chmod(filepath.Join(etc, "java-17-openjdk/hidden"), 0o700))
			cache := filepath.Join(t.TempDir(), "cache")
			if _, err := build(t, root, HostOptions{Cache: cache}); err != nil || notesOf(t, cache) == "" {
				t.Fatalf("%v, notes %q", err, notesOf(t, cache))
			}
			tick(t, etc)
			must(t, change(etc))
			for range 2 { // the second has new notes
				got, err := build(t, root, HostOptions{Cache: cache})
				must(t, err)
				want, err := build(t, root, HostOptions{})
				must(t, err)
				if diff := cmp.Diff(list(t, want.root.Dir.Name()), list(t, got.root.Dir.Name())); diff != "" {
					t.Errorf("without and with notes:\n%s", diff)
				}
				if a, b := filepath.Base(want.root.Dir.Name()), filepath.Base(got.root.Dir.Name()); a != b {
					t.Errorf("the digest is %s without notes and %s with them", a, b)
				}
			}
		})
	}
}

func must2(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func relink(to, at string) error { return must2(os.Remove(at), os.Symlink(to, at)) }

// TestNotesSpareASurvey looks at what a host tree knows, with notes nothing but
// its digest, and has a tree made nevertheless.
func TestNotesSpareASurvey(t *testing.T) {
	rest(t, 0)
	root, cache := fakeHost(t, debian...), filepath.Join(t.TempDir(), "cache")
	r, err := build(t, root, HostOptions{Cache: cache})
	must(t, err)
	h, err := surveyHost(root, sha256.New(), notesOf(t, cache))
	must(t, err)
	defer h.close()
	if h.etc != nil {
		t.Error("a survey was made beside notes")
	}
	if must(t, h.complete()); len(h.etc) == 0 {
		t.Error("nothing was found")
	}
	trees, err := filepath.Glob(filepath.Join(cache, treePrefix+"*"))
	must(t, err)
	for _, dir := range trees {
		must(t, os.RemoveAll(dir))
	}
	again, err := build(t, root, HostOptions{Cache: cache})
	must(t, err)
	if got := list(t, again.root.Dir.Name()); got["/etc/services"] == "" || again.root.Dir.Name() != r.root.Dir.Name() {
		t.Errorf("made with notes at hand: %v", got)
	}
}

// rest sets how long directories must have been left alone.
func rest(t *testing.T, d time.Duration) {
	before := settled
	settled = d
	t.Cleanup(func() { settled = before })
}

func TestLooksAreCheckedWhole(t *testing.T) {
	good := formatLooks([]look{{name: ".", kind: kindDir, read: true, was: [7]uint64{1, 2, 3, 4, 5, 6, 7}}, {name: "services", kind: kindFile, in: true}})
	if got, ok := parseLooks(good); !ok || len(got) != 2 || got[0].was[6] != 7 || got[1].name != "services" || !got[1].in {
		t.Fatal(got, ok)
	}
	for i := range good {
		if _, ok := parseLooks(good[:i]); ok {
			t.Errorf("%d of its bytes are taken", i)
		}
		bad := []byte(strings.Clone(string(good)))
		bad[i] ^= 1
		if _, ok := parseLooks(bad); ok {
			t.Errorf("taken with byte %d changed", i)
		}
	}
}

// Names that have just changed are not believed the next time.
func TestNotesNeedRest(t *testing.T) {
	rest(t, time.Hour)
	cache := filepath.Join(t.TempDir(), "cache")
	_, err := build(t, fakeHost(t, debian...), HostOptions{Cache: cache})
	if must(t, err); notesOf(t, cache) != "" {
		t.Error("notes were kept")
	}
}
