// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/caisson-run/caisson/sandbox"
)

// HomeFile is a file that a program finds in its home directory, and cannot change.
type HomeFile struct {
	Path    string // below it, in a directory
	Content []byte
}

// addLogins shows files in directories of the user's, in which agents keep more than their
// logins.
func (e *Environment) addLogins(list []HomeFile) error {
	for i, f := range list {
		target := path.Join(e.Spec.User.Home, f.Path)
		name := filepath.Join(e.Spec.StateDir, "login-"+strconv.Itoa(i))
		err := os.WriteFile(name, f.Content, 0o644) // a sandbox reads it, perhaps as another user
		if err == nil {
			err = e.showInHome(name, target)
		}
		if err != nil {
			return &sandbox.Error{Op: "login at " + target, Kind: sandbox.ErrUnavailable, Problem: "it cannot be shown", Cause: err,
				Hint: cmp.Or(sandbox.Hint(err), "in a run without the login, take away what is there or on the way; where that is a volume, caisson volume rm begins anew")}
		}
	}
	return nil
}

// showInHome shows the file name of this host's at target, in a directory that is there
// already or is private.
func (e *Environment) showInHome(name, target string) error {
	dir := path.Dir(target)
	over := -1
	for i, m := range e.Spec.Mounts {
		if m.Target == target {
			return sandbox.Errorf(sandbox.ErrInvalid, "mount", "something is mounted there")
		}
		if m.Dir && sandbox.Within(dir, m.Target) && (over < 0 || len(m.Target) > len(e.Spec.Mounts[over].Target)) {
			over = i
		}
	}
	if over >= 0 {
		if err := makePlace(e.Spec.Mounts[over], target); err != nil {
			return err
		}
	} else if !slices.Contains(e.private, dir) {
		e.private = append(e.private, dir)
	}
	return e.show(name, target)
}
