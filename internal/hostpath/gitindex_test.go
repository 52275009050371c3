// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// The submodules that git has in an index are those that are read of it.
func TestGitIndex(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	for name, args := range map[string][][]string{
		"version 2":   {{"update-index", "--index-version", "2"}},
		"version 3":   {{"update-index", "--index-version", "3"}, {"add", "-N", "later"}},
		"version 4":   {{"update-index", "--index-version", "4"}},
		"split":       {{"update-index", "--split-index"}},
		"long hashes": nil,
	} {
		t.Run(name, func(t *testing.T) {
			dir, hash, commit := t.TempDir(), 20, "1111111111111111111111111111111111111111"
			run := func(args ...string) {
				t.Helper()
				cmd := exec.Command(git, append([]string{"-C", dir}, args...)...)
				cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("git %v: %v %s", args, err, out)
				}
			}
			init := []string{"init", "-q"}
			if name == "long hashes" {
				hash, commit, init = 32, commit+"111111111111111111111111", append(init, "--object-format=sha256")
			}
			run(init...)
			put(t, dir, "a=x", "lib/a=x", "lib/ab=x", "later=x", "z/y/x/w=x")
			run("add", "a", "lib", "z")
			run("update-index", "--add", "--cacheinfo", "160000,"+commit+",lib/sub", "--cacheinfo", "160000,"+commit+",vendor/a name")
			for _, a := range args {
				run(a...)
			}
			b, err := os.ReadFile(filepath.Join(dir, ".git/index"))
			must(t, err)
			x, err := parseGitIndex(b, hash)
			must(t, err)
			got := x.gitlinks
			if x.shared != "" {
				b, err := os.ReadFile(filepath.Join(dir, ".git", x.shared))
				must(t, err)
				more, err := parseGitIndex(b, hash)
				must(t, err)
				got = append(got, more.gitlinks...)
			}
			if paths, shared, err := TrackedPaths(b); err != nil || shared != x.shared || shared == "" && !slices.Contains(paths, "z/y/x/w") {
				t.Errorf("%q are tracked, more in %q, %v", paths, shared, err)
			}
			if want := []string{"lib/sub", "vendor/a name"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if (x.shared != "") != (name == "split") {
				t.Errorf("shared is %q", x.shared)
			}
		})
	}
}

func FuzzGitIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00link\x00\x00\x00\x1412345678901234567890abcdefghijabcdefghij"), false)
	entry := append(make([]byte, 24), 0, 0, 0xe0, 0)
	entry = append(entry, make([]byte, 12+20)...)
	entry = append(entry, 0, 3, 'l', 'i', 'b', 0, 0, 0, 0, 0, 0, 0)
	f.Add(append(append([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"), entry...), make([]byte, 20)...), false)
	f.Add(append(append([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"), entry...), make([]byte, 20)...), true)
	f.Fuzz(func(t *testing.T, b []byte, long bool) {
		x, err := parseGitIndex(b, map[bool]int{false: 20, true: 32}[long])
		if err == nil && len(x.gitlinks) > len(b)/indexEntry {
			t.Errorf("%d submodules in %d bytes", len(x.gitlinks), len(b))
		}
	})
}
