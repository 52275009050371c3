// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"fmt"
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

// ApplyOptions say what of a set is applied, and where.
type ApplyOptions struct {
	// Digest is the set's, as it was shown. Another is refused.
	Digest string
	// Root is the workspace on the host. Where it is nil the set's Name is opened. Another
	// directory than the one that the set was made of is refused.
	Root *os.File
	// Paths are files, directories with all that is in them, or globs with *, ? and **.
	// None is all. What is held back is left, and refused where it is named alone.
	Paths []string
	// Exact takes each of Paths for one entry of the set and nothing else: not for what lies
	// below it, and not for a pattern.
	Exact bool
	// Held are paths that are applied although they are held back, beside those of Paths.
	Held []string
	// Rules bound all of it where no person looks: each of them has to let a path through.
	// They may hold back what Held names. Empty: there are none.
	Rules []Rules
	// SkipConflicts applies what is in no conflict. Without it a conflict means that
	// nothing is applied.
	SkipConflicts bool
}

// Applied says what an Apply did. Paths are in the order of the set.
type Applied struct {
	ID        string     `json:"id"`
	Digest    string     `json:"digest"`
	Paths     []string   `json:"paths"`             // applied now
	Already   []string   `json:"already,omitempty"` // the host has them so
	Left      []Left     `json:"left,omitempty"`    // held back, or not empty
	Conflicts []Conflict `json:"conflicts,omitempty"`
	// Resumed says that an earlier Apply had ended half way, and that what it was to apply
	// is done, too.
	Resumed bool `json:"resumed,omitempty"`
}

// Left is a path that was not applied, on purpose.
type Left struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Conflict is a path that has another file on the host than the one that was changed.
type Conflict struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Apply applies a set to its workspace. The ID is a whole one.
//
// With a conflict it is ErrConflict, and the Applied names all of them; nothing was
// applied then unless SkipConflicts is set. A file that changes on the host while Apply
// runs is a conflict, too, and what else is asked for is applied. With another error an
// Apply may have ended half way: each file is old or new, and the next Apply goes on.
func (s *Store) Apply(ctx context.Context, id string, o ApplyOptions) (*Applied, error) {
	lock, err := s.lock(id, lockTry)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	set, err := s.read(id)
	if err != nil {
		return nil, err
	}
	if o.Digest != set.Digest {
		return nil, &sandbox.Error{Op: "apply change set " + id, Kind: sandbox.ErrConflict, Problem: "it has another digest than the one that was shown", Hint: "show it again, and give the digest that it shows"}
	}
	sel, err := choose(set, &o)
	if err != nil {
		return nil, err
	}
	root, err := openRoot(set, &o)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return s.apply(ctx, sel, &o, root)
}

// Chosen gives the entries that an Apply would take, before it looks at the host, and the
// paths that it would leave. Errors are those of Apply for what is asked of it.
func Chosen(set *Set, o *ApplyOptions) (entries []*Entry, left []Left, err error) {
	sel, err := choose(set, o)
	if err != nil {
		return nil, nil, err
	}
	for i, chosen := range sel.chosen {
		if chosen {
			entries = append(entries, &set.Entries[i])
		}
	}
	return entries, sel.left, nil
}

// conflicted is the error of an Apply with conflicts.
func (a *Applied) conflicted(nothing bool) error {
	first := a.Conflicts[0]
	problem := fmt.Sprintf("%s: %s", Shown(first.Path), first.Why)
	if n := len(a.Conflicts) - 1; n > 0 {
		problem += fmt.Sprintf("; and %d more", n)
	}
	hint := "what is in no conflict was applied"
	if nothing {
		hint = "nothing was applied; apply the other paths, or skip conflicts"
	}
	return &sandbox.Error{Op: "apply change set " + a.ID, Kind: sandbox.ErrConflict, Problem: problem, Hint: hint}
}
