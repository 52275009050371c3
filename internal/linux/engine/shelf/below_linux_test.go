// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

var label = Label{Digest: "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", Size: 4, GVisor: "v0"}

// kept is a state directory on whose shelf the program lies.
func kept(t *testing.T) string {
	t.Helper()
	state := filepath.Join(t.TempDir(), "home", "caisson")
	if err := errors.Join(os.Mkdir(filepath.Dir(state), 0o755), os.Mkdir(state, 0o700), os.Mkdir(filepath.Join(state, runs), 0o700)); err != nil {
		t.Fatal(err)
	}
	s, err := Open(filepath.Join(state, runs))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Put(label, func(w io.Writer) error { _, err := w.Write([]byte("\x7fELF")); return err }); err != nil {
		t.Fatal(err)
	}
	return state
}

func TestBelow(t *testing.T) {
	f, err := label.below(kept(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || string(text) != "\x7fELF" {
		t.Errorf("%q, %v", text, err)
	}
}

// Whoever can put another directory in the way of the right one can have any
// program executed.
func TestWayInDoubt(t *testing.T) {
	for name, spoil := range map[string]func(state string) (string, error){
		"not there":          func(state string) (string, error) { return state + "2", nil },
		"relative":           func(state string) (string, error) { return state[1:], nil },
		"empty":              func(string) (string, error) { return "", nil },
		"dots":               func(state string) (string, error) { return state + "/../caisson", nil },
		"home is everyone's": func(state string) (string, error) { return state, os.Chmod(filepath.Dir(state), 0o777) },
		"home is a group's":  func(state string) (string, error) { return state, os.Chmod(filepath.Dir(state), 0o775) },
		"home is a link": func(state string) (string, error) {
			home := filepath.Dir(state)
			return state, errors.Join(os.Rename(home, home+"2"), os.Symlink(home+"2", home))
		},
		"home is another's":  func(state string) (string, error) { return state, os.Chown(filepath.Dir(state), os.Geteuid()+1, -1) },
		"state is another's": func(state string) (string, error) { return state, os.Chown(state, os.Geteuid()+1, -1) },
		"shelf is another's": func(state string) (string, error) {
			return state, os.Chown(filepath.Join(state, runs), os.Geteuid()+1, -1)
		},
		"shelf is open": func(state string) (string, error) { return state, os.Chmod(filepath.Join(state, runs), 0o755) },
		"shelf is a link": func(state string) (string, error) {
			run := filepath.Join(state, runs)
			return state, errors.Join(os.Rename(run, run+"2"), os.Symlink(run+"2", run))
		},
		"program is another": func(state string) (string, error) {
			return state, os.Chmod(filepath.Join(state, runs, NameOf(label)), 0o755)
		},
	} {
		t.Run(name, func(t *testing.T) {
			state, err := spoil(kept(t))
			if errors.Is(err, os.ErrPermission) {
				return // only root gives files away
			}
			if err != nil {
				t.Fatal(err)
			}
			if f, err := label.below(state); err == nil {
				f.Close()
				t.Error("it was opened")
			}
		})
	}
}
