// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is said on the log is the objects at the paths, links as links, and of a
// namespace the namespace.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stderr := os.Stderr
	os.Stderr = w
	paths, _ := json.Marshal([]string{dir, link, "/proc/self/ns/net"})
	err = look(string(paths))
	os.Stderr = stderr
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var line [512]byte
	n, err := r.Read(line[:])
	if err != nil {
		t.Fatal(err)
	}
	list, ok := strings.CutPrefix(string(line[:n]), LookPrefix)
	var got [][2]uint64
	if err := json.Unmarshal([]byte(list), &got); !ok || err != nil || len(got) != 3 {
		t.Fatalf("%q, %v", line[:n], err)
	}
	for i, stat := range []func(string, *syscall.Stat_t) error{syscall.Lstat, syscall.Lstat, syscall.Stat} {
		var st syscall.Stat_t
		if err := stat([]string{dir, link, "/proc/self/ns/net"}[i], &st); err != nil || got[i] != [2]uint64{uint64(st.Dev), st.Ino} {
			t.Errorf("%d: %v, %v", i, got[i], err)
		}
	}
	for _, bad := range []string{"", "{}", `["/no/such/path"]`} {
		if look(bad) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestOwn(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "home")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(OwnVariable, "x")
	list, _ := json.Marshal([]string{inner})
	if err := own(string(list), os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(inner)
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, there := os.LookupEnv(OwnVariable); there {
		t.Error("programs would see it")
	}
	// Not what a link leads to, nor a file.
	link := filepath.Join(dir, "link")
	if err := os.Symlink(inner, link); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{link, "/etc/passwd", "/no/such"} {
		list, _ := json.Marshal([]string{bad})
		if own(string(list), os.Getuid(), os.Getgid()) == nil {
			t.Errorf("%s passes", bad)
		}
	}
}
