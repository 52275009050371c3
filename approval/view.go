// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// View is a Subject as an approver sees it. Every line of it can be written to a
// terminal, into a page or into JSON as it is: it has printable characters
// alone, none that change what others look like, and is short.
type View struct {
	// Warnings come first: what is odd about what follows.
	Warnings []string `json:"warnings,omitempty"`
	Fields   []Field  `json:"fields"`
}

// Field is one thing about a call.
type Field struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines"` // each begins with a gutter, which no text can write
}

// Bounds of what a person can be asked to read. What is longer cannot be
// approved: no person agrees to what they have not seen.
const (
	maxLines = 4000
	maxText  = 256 << 10
)

// View makes what an approver sees. ErrInvalid says that it is too long for one.
func (s *Subject) View() (*View, error) {
	v := &viewer{}
	for i, r := range s.Reasons {
		v.field(nth("asked because", i, len(s.Reasons)), r.What+" ("+r.Rule+")")
	}
	v.field("asked by", s.Actor)
	v.field("to", s.Kind)
	v.field("tool", s.Tool)
	v.field("arguments", s.Params)
	v.field("tool's definition", s.Definition)
	for i, a := range s.Argv {
		name := "argument " + strconv.Itoa(i)
		if i == 0 && s.Code == nil {
			name = "program"
		}
		v.always(name, a)
	}
	v.field("language", s.Language)
	v.field("run with", strings.Join(s.Program, " "))
	v.field("rules about code say", strings.Join(s.Findings, "\n"))
	v.field("code", string(s.Code))
	for _, f := range s.Files {
		text := f.Path
		if f.Real != f.Path {
			text += " is " + f.Real
		}
		v.field("file", fmt.Sprintf("%s\n%s, %d bytes", text, f.Digest, f.Size))
	}
	v.field("directory", s.Dir)
	if s.HasStdin {
		v.always("standard input", string(s.Stdin))
	}
	var env []string
	for _, e := range s.Env {
		env = append(env, e.Name)
	}
	v.field("variables", strings.Join(env, "\n"))
	for _, m := range s.Mounts {
		v.field("sees", m.Source+" at "+m.Target+", "+m.Access)
	}
	v.field("network", s.Network)
	v.field("secrets", strings.Join(s.Secrets, "\n"))
	v.field("isolation", s.Isolation)
	v.field("image", s.Image)
	v.field("user", s.User)
	var limits []string
	for _, name := range slices.Sorted(maps.Keys(s.Limits)) {
		limits = append(limits, name+" "+s.Limits[name])
	}
	v.field("limits", strings.Join(limits, "\n"))
	v.field("also", strings.Join(s.Options, "\n"))
	v.field("sandbox", strings.TrimSpace(s.Sandbox+" "+s.Generation))
	v.field("policy", s.Policy)
	if v.tooLong {
		return nil, &sandbox.Error{Op: "approval", Kind: sandbox.ErrDenied, Problem: "it is too long for an approver to look through",
			Hint: fmt.Sprintf("make it shorter than %d KiB and %d lines, or put data into a file", maxText>>10, maxLines), Rule: "built-in: approvals"}
	}
	return &v.View, nil
}

// viewer makes a View.
type viewer struct {
	View
	lines, text int
	tooLong     bool
}

// field adds a text unless it is empty.
func (v *viewer) field(name, text string) {
	if text != "" {
		v.always(name, text)
	}
}

func (v *viewer) always(name, text string) {
	v.text += len(text)
	if v.tooLong = v.tooLong || v.text > maxText; v.tooLong {
		return
	}
	shown, found := lines(text)
	if text == "" {
		shown = []string{gutter + string(openMark) + "empty" + string(closeMark)}
	}
	v.lines += len(shown)
	v.tooLong = v.tooLong || v.lines > maxLines
	for _, w := range found.words() {
		v.Warnings = append(v.Warnings, name+" has "+w)
	}
	v.Fields = append(v.Fields, Field{name, shown})
}

func nth(name string, i, of int) string {
	if of == 1 {
		return name
	}
	return name + " " + strconv.Itoa(i+1)
}

// String is the whole view, a text of lines.
func (v *View) String() string {
	var b strings.Builder
	for _, w := range v.Warnings {
		b.WriteString("! " + w + "\n")
	}
	for _, f := range v.Fields {
		b.WriteString(f.Name + ":\n")
		for _, l := range f.Lines {
			b.WriteString("  " + l + "\n")
		}
	}
	return b.String()
}

// Text is a short text as an approver sees it, on one line.
func Text(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	shown, _ := visible(s)
	return shown
}

// Seal is how much of a digest an approver is shown and repeats.
func (r *Request) Seal() string {
	seal := strings.TrimPrefix(r.Digest, "sha256:")
	return seal[:min(len(seal), 16)]
}
