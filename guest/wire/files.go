// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// UserHeader names whose rights a file operation has: "UID:GID".
const UserHeader = "Caisson-User"

// PlaceMode is the PAX record by which a file of PathPlace changes the mode alone.
const PlaceMode = "CAISSON.mode"

// CollectRequest asks for the files below Root that match a pattern. Nothing
// on the way may be a symbolic link, Root itself included.
type CollectRequest struct {
	Root     string   `json:"root"` // absolute and clean
	Patterns []string `json:"patterns"`
	MaxFiles int      `json:"maxFiles"`
	MaxBytes int64    `json:"maxBytes"` // of all files together
	MaxDepth int      `json:"maxDepth"` // directories below Root
}

// Check says what is wrong with a request, and returns its patterns.
func (r *CollectRequest) Check() ([]Glob, error) {
	if err := CheckAbsolute(r.Root); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	if len(r.Patterns) == 0 || len(r.Patterns) > 256 {
		return nil, errors.New("it needs 1 to 256 patterns")
	}
	if r.MaxFiles < 1 || r.MaxBytes < 0 || r.MaxDepth < 0 {
		return nil, errors.New("its limits are not positive")
	}
	var globs []Glob
	for _, p := range r.Patterns {
		g, err := ParseGlob(p)
		if err != nil {
			return nil, err
		}
		globs = append(globs, g)
	}
	return globs, nil
}

// CheckAbsolute says what is wrong with an absolute path inside.
func CheckAbsolute(p string) error {
	switch {
	case !path.IsAbs(p):
		return fmt.Errorf("%q is not absolute", p)
	case strings.Contains(p, "\x00"):
		return errors.New("the path has a NUL byte")
	case path.Clean(p) != p:
		return fmt.Errorf("%q is not the shortest form of itself", p)
	case len(p) > maxPath:
		return fmt.Errorf("the path is longer than %d bytes", maxPath)
	}
	return nil
}

// CheckName says what is wrong with a path as requests of E2B have them:
// absolute, or from the user's home.
func CheckName(p string) error {
	switch {
	case strings.Contains(p, "\x00"):
		return errors.New("the path has a NUL byte")
	case len(p) > maxPath:
		return fmt.Errorf("the path is longer than %d bytes", maxPath)
	}
	return nil
}

// FileEvent begins a file.
type FileEvent struct {
	Path string `json:"path"` // relative to Root
	Mode uint32 `json:"mode"` // permission bits
}

// FileEndEvent ends a file; with Error its content is not whole.
type FileEndEvent struct {
	Error string `json:"error,omitempty"`
}

// SkippedEvent is a match that is not collected.
type SkippedEvent struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`           // "symlink", "not a file", "permission denied"
	Target string `json:"target,omitempty"` // of a symlink
}

// DoneEvent ends a collection; with Error it is not whole.
type DoneEvent struct {
	Error string `json:"error,omitempty"`
}
