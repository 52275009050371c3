// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// A sandbox that is paused without its memory begins anew with its files: those of
// its directories and of its layer over the root, with their owners, modes, links,
// attributes and holes. What is in memory is gone: processes, /dev/shm, and the boot.
func TestPauseFilesOnGVisor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	rooted := func(o *persistent.SandboxesOptions) {
		o.Policies, o.Templates = nil, map[string]persistent.Template{persistent.BaseTemplate: {Root: true}}
	}
	const boot = "cat /proc/sys/kernel/random/boot_id"
	var s *persistent.Sandbox
	var first string
	t.Run("paused", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor", rooted)
		var err error
		// What was paused by hand does not wake either.
		if s, err = l.Create(t.Context(), l.key, persistent.Create{Lifetime: persistent.Lifetime{AutoResume: true}, Env: map[string]string{"NAME": "value"}}); err != nil {
			t.Fatal(err)
		}
		first = l.sh(t, s.ID, boot)
		l.sh(t, s.ID, `set -e; cd
			echo kept > file; chmod 640 file; ln -s file link; ln file hard; mkdir -p a/b; mkfifo pipe
			truncate -s 10M sparse; printf end >> sparse; head -c 3000000 /dev/urandom > random; sha256sum random > sum
			echo of tmp > /tmp/file; echo of shm > /dev/shm/file; mkdir /made && echo root > /made/file
			sudo sh -c 'rm -rf /media; echo changed > /etc/motd; chmod 4755 /etc/motd'
			sleep 4321 > /dev/null 2>&1 &`)
		if s, err = l.Handle(l.key, s.ID).PauseFiles(t.Context()); err != nil || s.State != registry.Paused || !s.Boots {
			t.Fatalf("%+v, %v", s, err)
		}
		if _, _, err := l.Handle(l.key, s.ID).Enter(t.Context()); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("asked while it is paused: %v", err)
		}
	})
	if t.Failed() {
		return
	}
	t.Run("resumed", func(t *testing.T) { // by another caisson
		l := openLiving(t, dir, "gvisor", rooted)
		got, err := l.Handle(l.key, s.ID).Resume(t.Context(), 0)
		if err != nil || got.State != registry.Running || got.Boots || got.Kept != "" {
			t.Fatalf("%+v, %v", got, err)
		}
		if again := l.sh(t, s.ID, boot); again == first || len(again) != 36 {
			t.Errorf("it goes on: boot %q was %q", again, first)
		}
		found := l.sh(t, s.ID, `cd; cat link hard; stat -c '%a %U %h %s' file sparse; [ -p pipe ] && [ -d a/b ] && sha256sum -c sum
			cat /tmp/file /made/file /etc/motd; stat -c '%a %U' /etc/motd; ls /media /dev/shm/file 2>&1; pgrep sleep; echo $NAME`)
		want := `kept
kept
640 user 2 5
644 user 1 10485763
random: OK
of tmp
root
changed
4755 root
ls: cannot access '/media': No such file or directory
ls: cannot access '/dev/shm/file': No such file or directory
value`
		if found != want {
			t.Errorf("there is\n%s\nwant\n%s", found, want)
		}
		if err := l.Handle(l.key, s.ID).Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(filepath.Join(dir, "kept")); len(left) > 0 {
			t.Errorf("%d snapshots are left", len(left))
		}
	})
}

// Levels whose files are in memory refuse it by name, and the sandbox runs on.
func TestPauseFilesElsewhere(t *testing.T) {
	l := openLiving(t, filepath.Join(t.TempDir(), "state"), "process")
	if _, err := l.Create(t.Context(), l.key, persistent.Create{Lifetime: persistent.Lifetime{OnTimeout: registry.PauseFiles, AutoResume: true}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("made to wake by itself: %v", err)
	}
	if _, err := l.Create(t.Context(), l.key, persistent.Create{Lifetime: persistent.Lifetime{OnTimeout: registry.PauseFiles}}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("made to be paused: %v", err)
	}
	s, err := l.Create(t.Context(), l.key, persistent.Create{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Handle(l.key, s.ID).PauseFiles(t.Context()); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "process") {
		t.Errorf("paused: %v", err)
	}
	if got := l.sh(t, s.ID, "echo it runs"); got != "it runs" {
		t.Error(got)
	}
}
