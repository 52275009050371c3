// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// asNobody runs one test of this binary as uid 65534, in a directory of its own.
func asNobody(t *testing.T, name string) error {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	own, bin := filepath.Join(dir, "own"), filepath.Join(dir, "test")
	must(t, os.Mkdir(own, 0o755))
	must(t, os.Chown(own, 65534, 65534))
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(bin, self, 0o755))
	cmd := exec.Command(bin, "-test.run=^"+name+"$", "-test.v")
	cmd.Dir = own
	cmd.Env = append(os.Environ(), "TMPDIR="+own, "HOME="+own)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err == nil && !strings.Contains(string(out), "--- PASS: "+name) {
		err = errors.New("it did not run")
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// names lists a tree.
func names(t testing.TB, dir string) (out []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && p != dir {
			out = append(out, strings.TrimPrefix(p, dir+"/"))
		}
		return err
	}))
	return out
}

// guard joins, scans and makes, as a session does.
func guard(t testing.TB, state string, src *Source) (*Placeholders, []Match) {
	t.Helper()
	return guardBy(t, state, src, ScanOptions{Protect: true})
}

func guardBy(t testing.TB, state string, src *Source, o ScanOptions) (*Placeholders, []Match) {
	t.Helper()
	p, err := Join(state, src)
	must(t, err)
	ms, err := Scan(t.Context(), src, o)
	must(t, err)
	must(t, p.Make(ms))
	return p, ms
}

func TestPlaceholdersComeAndGo(t *testing.T) {
	state := filepath.Join(t.TempDir(), "placeholders")
	src := workspace(t, append(repo("sub/.git"), "mine")...)
	before := names(t, src.Real)
	p, ms := guard(t, state, src)
	for _, m := range ms {
		info, err := os.Lstat(filepath.Join(src.Real, m.Rel))
		if err != nil || info.IsDir() != m.Dir {
			t.Errorf("%s is not there to be mounted over: %v", m.Rel, err)
		}
		f, err := src.Below(m.Rel)
		must(t, err)
		if opened, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err != nil || !os.SameFile(opened, info) {
			t.Errorf("%s: another object was opened: %v", m.Rel, err)
		}
		must(t, f.Close())
	}
	must(t, p.Close())
	must(t, p.Close())
	if diff := cmp.Diff(before, names(t, src.Real)); diff != "" {
		t.Errorf("the workspace is not as it was: %s", diff)
	}
	if diff := cmp.Diff([]string{"lock"}, names(t, state)); diff != "" {
		t.Errorf("state is left behind: %s", diff)
	}
}

// TestPlaceholdersTouchNothingElse changes placeholders as a user might while
// a sandbox runs: what is not as it was made stays.
func TestPlaceholdersTouchNothingElse(t *testing.T) {
	src := workspace(t)
	at := func(n string) string { return filepath.Join(src.Real, n) }
	p, _ := guard(t, filepath.Join(t.TempDir(), "p"), src)
	// The clock of the filesystem ticks some hundred times a second, and the
	// inode of a removed file is used again at once: go on when it has ticked.
	_, made, err := statBorn(unix.AT_FDCWD, at(".claude"))
	must(t, err)
	for now := made; made != 0 && now == made; {
		must(t, os.WriteFile(at("tick"), nil, 0o644))
		_, now, err = statBorn(unix.AT_FDCWD, at("tick"))
		must(t, errors.Join(err, os.Remove(at("tick"))))
	}
	must(t, os.WriteFile(at(".envrc"), []byte("export A=1"), 0o644)) // filled
	must(t, os.WriteFile(at(".vscode/tasks.json"), nil, 0o644))      // filled
	must(t, errors.Join(os.Remove(at(".mcp.json")), os.WriteFile(at(".mcp.json"), nil, 0o644)))
	must(t, errors.Join(os.Remove(at(".idea")), os.Symlink("/etc", at(".idea"))))
	must(t, errors.Join(os.Remove(at(".claude")), os.Mkdir(at(".claude"), 0o755)))
	must(t, os.Link(at("HEAD"), at("kept")))
	must(t, p.Close())
	want := []string{".claude", ".envrc", ".idea", ".mcp.json", ".vscode", ".vscode/tasks.json", "HEAD", "kept"}
	if diff := cmp.Diff(want, names(t, src.Real)); diff != "" {
		t.Error(diff)
	}
}

// TestPlaceholdersAreShared has two sandboxes in one workspace: the first to
// leave takes nothing away from the other.
func TestPlaceholdersAreShared(t *testing.T) {
	state := filepath.Join(t.TempDir(), "p")
	src := workspace(t)
	a, _ := guard(t, state, src)
	made := names(t, src.Real)
	b, ms := guard(t, state, src)
	for _, m := range ms {
		if m.Absent && m.Rel != "refs" {
			t.Errorf("%s is absent for the second", m.Rel)
		}
	}
	must(t, a.Close())
	for _, n := range made {
		if _, err := os.Lstat(filepath.Join(src.Real, n)); err != nil {
			t.Errorf("%s was taken away from the second", n)
		}
	}
	must(t, Sweep(state))
	if len(names(t, src.Real)) < len(made) {
		t.Error("Sweep took something away from a living sandbox")
	}
	must(t, b.Close())
	if left := names(t, src.Real); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestPlaceholdersRace lets many sandboxes come and go in one workspace.
func TestPlaceholdersRace(t *testing.T) {
	state := filepath.Join(t.TempDir(), "p")
	src := workspace(t, "mine")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 8 {
				p, err := Join(state, src)
				if err != nil {
					t.Error(err)
					return
				}
				ms, err := Scan(t.Context(), src, ScanOptions{Protect: true})
				if err == nil {
					err = p.Make(ms)
				}
				if err != nil {
					t.Error(err)
				}
				for _, m := range ms {
					if _, err := os.Lstat(filepath.Join(src.Real, m.Rel)); err != nil {
						t.Errorf("%s vanished below a sandbox", m.Rel)
					}
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff([]string{"mine"}, names(t, src.Real)); diff != "" {
		t.Error(diff)
	}
}

// TestPlaceholdersSurviveKill kills an owner at every line of its journal and
// wants Sweep, and the next Join, to leave what was there before.
func TestPlaceholdersSurviveKill(t *testing.T) {
	if dir := os.Getenv("CAISSON_PLACE_IN"); dir != "" {
		guard(t, os.Getenv("CAISSON_PLACE_STATE"), open(t, dir))
		must(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	for _, heal := range []string{"Sweep", "Join"} {
		state, src := filepath.Join(t.TempDir(), "p"), workspace(t, "mine")
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestPlaceholdersSurviveKill$")
		cmd.Env = append(os.Environ(), "CAISSON_PLACE_IN="+src.Real, "CAISSON_PLACE_STATE="+state)
		if out, err := cmd.CombinedOutput(); err == nil || len(names(t, src.Real)) < 5 {
			t.Fatalf("it was not killed with placeholders: %v %s", err, out)
		}
		if heal == "Sweep" {
			must(t, Sweep(state))
		} else {
			p, err := Join(state, src)
			must(t, err)
			must(t, p.Close())
		}
		if diff := cmp.Diff([]string{"mine"}, names(t, src.Real)); diff != "" {
			t.Errorf("%s: %s", heal, diff)
		}
	}
}

// TestPlaceholdersOfACopy copies the state while a sandbox uses its placeholders: neither
// Sweep nor Join of the copy takes them away.
func TestPlaceholdersOfACopy(t *testing.T) {
	state, src := filepath.Join(t.TempDir(), "p"), workspace(t, "mine")
	p, _ := guard(t, state, src)
	before := names(t, src.Real)
	for _, by := range []string{"Sweep", "Join"} {
		copied := filepath.Join(t.TempDir(), "p")
		must(t, os.CopyFS(copied, os.DirFS(state)))
		if by == "Sweep" {
			must(t, Sweep(copied))
		} else {
			other, err := Join(copied, src)
			must(t, err)
			must(t, other.Close())
		}
		if diff := cmp.Diff(before, names(t, src.Real)); diff != "" {
			t.Errorf("%s of a copy: %s", by, diff)
		}
	}
	must(t, p.Close())
	if diff := cmp.Diff([]string{"mine"}, names(t, src.Real)); diff != "" {
		t.Error(diff)
	}
}

// TestPlaceholdersCutOff replays a journal that ends after each of its bytes,
// on a workspace as it was at that moment or later.
func TestPlaceholdersCutOff(t *testing.T) {
	state, src := filepath.Join(t.TempDir(), "p"), workspace(t, "mine")
	p, _ := guard(t, state, src)
	journal, err := os.ReadFile(p.journal.Name())
	must(t, err)
	name := p.journal.Name()
	must(t, p.Close())
	for n := 0; n < len(journal); n += 7 {
		must(t, os.WriteFile(name, journal[:n], 0o600))
		_, lines, err := parseJournal(journal[:n])
		must(t, err)
		if len(lines) > 0 { // made under its random name, inode not written yet
			l := lines[len(lines)-1]
			if l.Ino == 0 && l.Dir {
				must(t, os.Mkdir(filepath.Join(src.Real, l.Temp), 0o755))
			} else if l.Ino == 0 {
				must(t, os.WriteFile(filepath.Join(src.Real, l.Temp), []byte(l.Text), 0o644))
			}
		}
		must(t, Sweep(state))
		if diff := cmp.Diff([]string{"mine"}, names(t, src.Real)); diff != "" {
			t.Fatalf("after %d bytes: %s", n, diff)
		}
	}
}

// TestPlaceholdersThroughNoLink replaces a directory by a link between Scan
// and Make, and after Make: nothing is made or removed elsewhere.
func TestPlaceholdersThroughNoLink(t *testing.T) {
	state, elsewhere := filepath.Join(t.TempDir(), "p"), workspace(t, "hooks/")
	src := workspace(t, ".git/HEAD", ".git/objects/", ".git/refs/", ".git/config")
	git := filepath.Join(src.Real, ".git")
	p, err := Join(state, src)
	must(t, err)
	ms, err := Scan(t.Context(), src, ScanOptions{Protect: true, GitWrite: true})
	must(t, err)
	must(t, errors.Join(os.Rename(git, git+"2"), os.Symlink(elsewhere.Real, git)))
	if err := p.Make(ms); err == nil {
		t.Error("a placeholder was made through a link")
	}
	must(t, p.Close())
	if f, err := src.Below(".git/hooks"); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("%v was opened through a link: %v", f, err)
	}
	if diff := cmp.Diff([]string{"hooks"}, names(t, elsewhere.Real)); diff != "" {
		t.Errorf("elsewhere changed: %s", diff)
	}
	must(t, errors.Join(os.Remove(git), os.Rename(git+"2", git)))
	p, _ = guardBy(t, state, src, ScanOptions{Protect: true, GitWrite: true})
	must(t, errors.Join(os.Rename(git, git+"2"), os.Symlink(elsewhere.Real, git)))
	must(t, p.Close())
	if diff := cmp.Diff([]string{"hooks"}, names(t, elsewhere.Real)); diff != "" {
		t.Errorf("elsewhere changed: %s", diff)
	}
}

func TestPlaceholderConflict(t *testing.T) {
	src := workspace(t)
	p, err := Join(filepath.Join(t.TempDir(), "p"), src)
	must(t, err)
	ms, err := Scan(t.Context(), src, ScanOptions{Protect: true})
	must(t, err)
	grow(t, src.Real, ".envrc->/etc/passwd")
	if err := p.Make(ms); !errors.Is(err, sandbox.ErrConflict) || sandbox.Hint(err) == "" {
		t.Errorf("got %v, want ErrConflict with a hint", err)
	}
	must(t, p.Close())
	if diff := cmp.Diff([]string{".envrc"}, names(t, src.Real)); diff != "" {
		t.Error(diff)
	}
}

// TestGitWorksBesidePlaceholders asks git itself: placeholders change nothing
// for a repository, and make none of a directory that is none.
func TestGitWorksBesidePlaceholders(t *testing.T) {
	git := func(src *Source, args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = src.Real
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent", "GIT_CEILING_DIRECTORIES="+filepath.Dir(src.Real),
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	src := workspace(t, "file")
	if out, err := git(src, "init", "-q", "--template="); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	p, _ := guardBy(t, filepath.Join(t.TempDir(), "p"), src, ScanOptions{Protect: true, GitWrite: true})
	for _, args := range [][]string{{"add", "file"}, {"commit", "-qm", "x"}, {"status"}, {"worktree", "add", "-q", "tree"}, {"gc", "-q"}, {"log", "--oneline"}} {
		if out, err := git(src, args...); err != nil {
			t.Errorf("git %v: %v %s", args, err, out)
		}
	}
	must(t, p.Close())

	// Everything that code inside could add to make a bare repository.
	bare := workspace(t, "file")
	p, ms := guard(t, filepath.Join(t.TempDir(), "p"), bare)
	kept := map[string]bool{}
	for _, m := range ms {
		kept[m.Rel] = true
	}
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = \"touch pwned; false\"\n"} {
		if !kept[name] {
			must(t, os.WriteFile(filepath.Join(bare.Real, name), []byte(text), 0o644))
		}
	}
	for _, name := range []string{"objects", "refs"} {
		if !kept[name] {
			must(t, os.Mkdir(filepath.Join(bare.Real, name), 0o755))
		}
	}
	if out, err := git(bare, "status"); err == nil {
		t.Errorf("git takes the directory for a repository: %s", out)
	}
	if _, err := os.Lstat(filepath.Join(bare.Real, "pwned")); err == nil {
		t.Error("git ran what the sandbox wrote")
	}
	must(t, p.Close())
}

func FuzzParseJournal(f *testing.F) {
	f.Add([]byte(`{"root":"/w","Dev":1,"Ino":2}` + "\n" + `{"rel":".envrc","temp":".caisson-X","dev":1,"ino":3}` + "\n"))
	f.Add([]byte(`{"root":"/w"}` + "\n" + `{"rel":"../x","temp":".caisson-X"}` + "\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, lines, err := parseJournal(b)
		if err != nil {
			return
		}
		for _, l := range lines {
			if !filepath.IsLocal(l.Rel) || strings.Contains(l.Temp, "/") || l.Temp == "" {
				t.Errorf("%+v leads out of the workspace", l)
			}
		}
	})
}

// A placeholder with something in it is none.
func TestPlaceholderThatWasFilled(t *testing.T) {
	src := workspace(t)
	p, _ := guard(t, filepath.Join(t.TempDir(), "p"), src)
	defer p.Close()
	dir, err := openDir(int(src.File.Fd()), ".")
	must(t, err)
	defer unix.Close(dir)
	for _, name := range []string{".envrc", ".vscode", ".git"} {
		if !p.made(dir, name) {
			t.Errorf("%s is no placeholder", name)
		}
	}
	grow(t, src.Real, ".vscode/tasks.json", "mine")
	must(t, os.WriteFile(filepath.Join(src.Real, ".envrc"), []byte("x"), 0o644))
	for _, name := range []string{".envrc", ".vscode", "mine", "nothing"} {
		if p.made(dir, name) {
			t.Errorf("%s is a placeholder", name)
		}
	}
}
