// SPDX-License-Identifier: Apache-2.0

package template

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// maxFaults are shown; a file with more is no template.yaml.
const maxFaults = 20

// decoder reads the nodes of a template.yaml and collects faults. It is as strict as
// package policy's, which knows one file's sections.
type decoder struct {
	name   string
	faults []*sandbox.Error
	lines  []int // of faults
}

// field is a key and how its value is read.
type field struct {
	name string
	read func(n *yaml.Node)
}

func (d *decoder) fault(n *yaml.Node, hint, format string, args ...any) {
	d.faults = append(d.faults, fault(sandbox.ErrInvalid, d.name, n.Line, hint, format, args...))
	d.lines = append(d.lines, n.Line)
}

// err joins the faults in the order of their lines.
func (d *decoder) err() error {
	order := make([]int, len(d.faults))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return d.lines[a] - d.lines[b] })
	var errs []error
	for _, i := range order[:min(len(order), maxFaults)] {
		errs = append(errs, d.faults[i])
	}
	return errors.Join(errs...)
}

// load is the one mapping of a file, or nil and a fault.
func (d *decoder) load(src []byte) *yaml.Node {
	top := &yaml.Node{Line: 1}
	if line, problem, hint := checkText(src); line > 0 {
		d.fault(&yaml.Node{Line: line}, hint, "%s", problem)
		return nil
	}
	// Into a Node nothing is expanded: an alias stays one node, and is refused.
	loader, err := yaml.NewLoader(bytes.NewReader(src), yaml.WithV4Defaults())
	var doc, second yaml.Node
	if err == nil {
		err = loader.Load(&doc)
	}
	if errors.Is(err, io.EOF) || err == nil && (len(doc.Content) != 1 || isNull(doc.Content[0])) {
		d.fault(top, "write at least from: host", "it is empty")
		return nil
	}
	if err == nil {
		if err = loader.Load(&second); err == nil {
			d.fault(&second, "keep one document, drop the line ---", "it has a second document")
			return nil
		} else if errors.Is(err, io.EOF) {
			return doc.Content[0]
		}
	}
	message := err.Error()
	if e := (*yaml.LoadError)(nil); errors.As(err, &e) {
		top.Line, message = e.Mark.Line, e.Message
	}
	d.fault(top, "check indentation, quotes and brackets there", "it is not YAML: %s", message)
	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// plain refuses aliases, the stuff of bombs, anchors and tags.
func (d *decoder) plain(n *yaml.Node, what string) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.fault(n, "write the value itself", "aliases are not taken")
	case n.Anchor != "":
		d.fault(n, "drop &"+n.Anchor, "anchors are not taken")
	case n.Style&yaml.TaggedStyle != 0:
		d.fault(n, "drop "+n.Tag, "tags are not taken")
	case isNull(n):
		d.fault(n, "give it a value or drop it", "%s is empty", what)
	default:
		return true
	}
	return false
}

// pairs calls read with each key and value of a mapping.
func (d *decoder) pairs(n *yaml.Node, what string, read func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fault(n, "write key: value lines, or {key: value}", "%s is not a mapping", what)
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content) && len(d.faults) <= maxFaults; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !d.plain(key, "a key of "+what) {
			continue
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			d.fault(key, "a key is a word; quote it if it looks like a number", "a key of %s is not text", what)
			continue
		}
		if line, twice := first[key.Value]; twice {
			d.fault(key, "keep one of them", "%s is already in line %d", quote(key.Value), line)
			continue
		}
		first[key.Value] = key.Line
		if d.plain(value, key.Value) {
			read(key, value)
		}
	}
}

// mapping reads n by its fields.
func (d *decoder) mapping(n *yaml.Node, what string, fields []field) {
	d.pairs(n, what, func(key, value *yaml.Node) {
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		if at < 0 {
			d.fault(key, meant(key.Value, fields), "%s has no key %s", what, quote(key.Value))
			return
		}
		fields[at].read(value)
	})
}

// meant is the hint for a key that is none.
func meant(got string, fields []field) string {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	known := "known are " + strings.Join(names, ", ")
	near := slices.MinFunc(names, func(a, b string) int { return policy.Distance(got, a) - policy.Distance(got, b) })
	if n := policy.Distance(got, near); n <= 1+len(got)/3 && n < len(near) {
		return "did you mean " + near + "? " + known
	}
	return known
}

// list reads each item of a list.
func (d *decoder) list(n *yaml.Node, what string, read func(n *yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		d.fault(n, "write a list: [one, two] or lines that begin with -", "%s is not a list", what)
		return
	}
	if len(n.Content) > maxListed {
		d.fault(n, "split the template, and build one on the other", "%s has more than %d entries", what, maxListed)
		return
	}
	for _, item := range n.Content {
		if len(d.faults) <= maxFaults && d.plain(item, "an entry of "+what) {
			read(item)
		}
	}
}

// scalar reads one value. With numbers, what YAML takes for a number or true is text too.
func (d *decoder) scalar(n *yaml.Node, what string, numbers bool, check func(string) error) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		d.fault(n, "write one value", "%s is not text", what)
	case !numbers && n.ShortTag() != "!!str":
		d.fault(n, `put it in quotes: "`+n.Value+`"`, "%s: %s is not text", what, quote(n.Value))
	default:
		err := check(n.Value)
		if err == nil {
			return n.Value
		}
		d.fault(n, sandbox.Hint(err), "%s: %s", what, problem(err))
	}
	return ""
}

// problem is what is wrong, without what was tried.
func problem(err error) string {
	if e := (*sandbox.Error)(nil); errors.As(err, &e) {
		return e.Problem
	}
	return err.Error()
}

func (d *decoder) text(n *yaml.Node, what string, check func(string) error) string {
	return d.scalar(n, what, false, check)
}

func (d *decoder) texts(n *yaml.Node, what string, check func(string) error) (out []string) {
	d.list(n, what, func(n *yaml.Node) {
		if s := d.text(n, what, check); s != "" {
			out = append(out, s)
		}
	})
	return out
}

// filled refuses an empty text.
func filled(s string) error {
	if strings.TrimSpace(s) == "" {
		return invalid("give it a value or drop it", "it is empty")
	}
	return nil
}
