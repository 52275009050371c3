// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// letters are what a list shows of an operation.
var letters = map[Op]string{Add: "A", Change: "M", Remove: "D", Mode: "X"}

// WriteStat writes a line for each entry of a set, and what is not in them. Directories
// that only hold what is listed have none.
func WriteStat(w io.Writer, set *Set) error {
	b := bufio.NewWriter(w)
	for i := range set.Entries {
		e := &set.Entries[i]
		fmt.Fprintln(b, e.Line())
		for _, why := range e.Held {
			fmt.Fprintf(b, "  held back: %s\n", why)
		}
		if e.Base != nil && e.Base.Touched {
			b.WriteString("  in conflict: it was changed on the host while the run was on\n")
		}
	}
	for _, r := range set.Repositories {
		fmt.Fprintf(b, "! %s: %s, never applied: git on the host runs what is in a repository\n", Shown(r.Path), count(r.Changes, "change"))
	}
	fmt.Fprintf(b, "%s\n", set.Line())
	return b.Flush()
}

// Line says in one line what was done to a path.
func (e *Entry) Line() string { return letters[e.Op] + " " + Shown(e.Path) + e.what() }

// what says what a path is, where it is not a plain file.
func (e *Entry) what() string {
	switch {
	case e.Type == Dir && e.Op == Mode && e.Base != nil:
		return fmt.Sprintf("/ (mode %04o, was %04o)", e.Mode, e.Base.Mode)
	case e.Type == Dir:
		return "/" + bracketed(e.was())
	case e.Op == Remove:
		return ""
	case e.Type == Link:
		return " -> " + Shown(e.Link) + bracketed(e.was())
	case e.Op == Mode && e.Exec():
		return " (can be run now)"
	case e.Op == Mode:
		return " (can no longer be run)"
	case e.Exec():
		return bracketed(count(e.Size, "byte"), "can be run", e.was())
	}
	return bracketed(count(e.Size, "byte"), e.was())
}

// was says what was at a path that is of another type now.
func (e *Entry) was() string {
	if e.Op != Change || e.Base == nil || e.Base.Type == e.Type {
		return ""
	}
	switch e.Base.Type {
	case Link:
		return "was a link"
	case Dir:
		return "was a directory"
	case File:
		return "was a file"
	}
	return "was a socket, pipe or device"
}

// bracketed writes what there is to say about a path.
func bracketed(said ...string) string {
	said = slices.DeleteFunc(said, func(s string) bool { return s == "" })
	if len(said) == 0 {
		return ""
	}
	return " (" + strings.Join(said, ", ") + ")"
}

// Line is a summary in one line.
func (s *Summary) Line() string {
	parts := []string{count(s.Files, "file") + " changed"}
	for _, p := range []struct {
		n    int
		text string
	}{{s.Counts.Held, "held back"}, {s.Ignored, "ignored and not kept"}, {s.Skipped, "skipped"}, {s.State.files(), "applied"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.text))
		}
	}
	switch {
	case s.State.Applied == 0 || s.State.files() > 0:
	case s.State.Files == nil:
		parts = append(parts, "applied")
	default:
		parts = append(parts, "directories applied")
	}
	if s.State.Unfinished {
		parts = append(parts, "an apply ended half way: apply again goes on")
	}
	return strings.Join(parts, ", ")
}

// files is how many files were applied, as far as that is known.
func (s *State) files() int {
	if s.Files == nil {
		return 0
	}
	return *s.Files
}

func count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
