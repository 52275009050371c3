// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-run/caisson/sandbox"
	"go.yaml.in/yaml/v4"
)

const (
	maxFile   = 256 << 10 // bytes of a policy file
	maxFaults = 20        // shown; a file with more is no policy file
)

// Parse reads a policy file. It is strict: every key it does not know, value
// in the wrong unit, key written twice, alias, second document and section
// that cannot be enforced yet is a fault, and all faults are reported, joined
// (errors.Join), in the order of their places. Each is a *sandbox.Error of
// kind ErrInvalid whose Op is name:line:column, with a hint.
//
// The name appears in messages; its directory is where relative host paths
// start from (see File.Dir).
func Parse(name string, src []byte) (f *File, err error) {
	d := &decoder{file: &File{Name: name, Dir: filepath.Dir(name), limitsAt: map[sandbox.LimitName]Pos{}}}
	// A fault in here or in the YAML library must not take the program down,
	// nor let a file through.
	defer func() {
		if p := recover(); p != nil {
			d.fault(Pos{1, 1}, "report this with the file", "reading it failed: %v", p)
			f, err = nil, d.err()
		}
	}()
	if root := d.load(src); root != nil {
		d.mapping(root, "the policy", d.top())
		if !d.version.Said() && len(d.faults) == 0 {
			d.fault(Pos{root.Line, root.Column}, "write version: 1 as the first line", "it has no version")
		}
		if f := d.file; f.Env.Any.V && f.Commands.At.Said() {
			d.fault(f.Env.Any.At, "name the variables: env: {pass: [NAME]}", "env.any goes with no commands: a variable can have an allowed program start another")
		}
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return d.file, nil
}

// load makes the one tree of nodes in src, or notes faults and returns nil.
func (d *decoder) load(src []byte) *yaml.Node {
	const empty = "write at least version: 1, or start from caisson policy init"
	if len(src) > maxFile {
		d.fault(Pos{1, 1}, "split it, or drop what is not needed", "it is longer than %d KiB", maxFile>>10)
		return nil
	}
	if p, why, ok := unseen(src); ok {
		d.fault(p, "save it as plain UTF-8 text, or drop the character", "%s", why)
		return nil
	}
	// Into a Node nothing is expanded: an alias stays one node, and is
	// refused below wherever it stands.
	loader, err := yaml.NewLoader(bytes.NewReader(src), yaml.WithV4Defaults())
	if err != nil {
		d.syntax(err)
		return nil
	}
	var doc, second yaml.Node
	if err := loader.Load(&doc); errors.Is(err, io.EOF) {
		d.fault(Pos{1, 1}, empty, "it is empty")
		return nil
	} else if err != nil {
		d.syntax(err)
		return nil
	}
	if err := loader.Load(&second); err == nil {
		d.fault(at(&second), "keep one document, drop the line ---", "it has a second document")
		return nil
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
		return nil
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || isNull(doc.Content[0]) {
		d.fault(Pos{1, 1}, empty, "it is empty")
		return nil
	}
	return doc.Content[0]
}

// unseen finds the first character that makes a reader see another file than
// we read: bytes that are no UTF-8, control characters, line breaks that only
// YAML knows (U+0085, U+2028, U+2029, a lone CR: places in messages would be
// off, too), and marks that turn the direction of text around
// (CVE-2021-42574).
func unseen(src []byte) (p Pos, why string, found bool) {
	line, start := 1, 0
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRune(src[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			why = "it is not UTF-8 text"
		case r == '\n':
			line, start = line+1, i+1
		case r == '\t', r == '\r' && i+1 < len(src) && src[i+1] == '\n':
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', unicode.Is(unicode.Bidi_Control, r):
			why = fmt.Sprintf("it has a character that cannot be seen, %U", r)
		}
		if why != "" {
			return Pos{line, utf8.RuneCount(src[start:i]) + 1}, why, true
		}
		i += n
	}
	return Pos{}, "", false
}

// syntax notes what the YAML library found.
func (d *decoder) syntax(err error) {
	const hint = "check indentation, quotes and brackets there"
	var e *yaml.LoadError
	if errors.As(err, &e) {
		d.fault(Pos{e.Mark.Line, e.Mark.Column}, hint, "it is not YAML: %s", e.Message)
		return
	}
	d.fault(Pos{1, 1}, hint, "it is not YAML: %v", err)
}

// fault notes one fault. Places the library does not know become 1:1.
func (d *decoder) fault(p Pos, hint, format string, args ...any) {
	p.Line, p.Column = max(p.Line, 1), max(p.Column, 1)
	d.faults = append(d.faults, fault{p, &sandbox.Error{
		Op: d.file.position(p), Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf(format, args...), Hint: short(hint), Rule: d.file.rule(p),
	}})
}

// err joins the faults in the order of their places.
func (d *decoder) err() error {
	slices.SortStableFunc(d.faults, func(a, b fault) int {
		if a.at.Line != b.at.Line {
			return a.at.Line - b.at.Line
		}
		return a.at.Column - b.at.Column
	})
	var errs []error
	for i, f := range d.faults {
		if i == maxFaults {
			errs = append(errs, &sandbox.Error{
				Op: d.file.position(f.at), Kind: sandbox.ErrInvalid,
				Problem: fmt.Sprintf("%d more faults from here on", len(d.faults)-i), Hint: "mend the first ones",
			})
			break
		}
		errs = append(errs, f.err)
	}
	return errors.Join(errs...)
}
