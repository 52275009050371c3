// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
	"go.yaml.in/yaml/v4"
)

// decoder turns nodes into a File and collects faults on the way.
type decoder struct {
	file    *File
	version Value[string]
	key     Pos // of the value being read: where its section begins
	faults  []fault
	quoted  map[Pos]bool // where texts begin with a quotation mark
}

type fault struct {
	at  Pos
	err *sandbox.Error
}

// field is a key of a mapping and how its value is read.
type field struct {
	name string
	read func(n *yaml.Node)
}

// scalar is how a value may be written.
type scalar int

const (
	scalarText      scalar = iota // text
	scalarInt                     // 5
	scalarNumber                  // 5 or 0.5
	scalarTextOrInt               // text or 5
	scalarBool                    // true or false
)

// describe is for "want …".
func (s scalar) describe() string {
	return [...]string{"text", "a whole number", "a number", "text or a whole number", "true or false"}[s]
}

func (s scalar) takes(tag string) bool {
	switch tag {
	case "!!str":
		return s == scalarText || s == scalarTextOrInt
	case "!!int":
		return s == scalarInt || s == scalarNumber || s == scalarTextOrInt
	case "!!float":
		return s == scalarNumber
	case "!!bool":
		return s == scalarBool
	}
	return false
}

func at(n *yaml.Node) Pos { return Pos{n.Line, n.Column} }

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// plain notes a fault for what a policy file has no use for: aliases (the
// stuff of bombs, and a reader should see each value where it counts), anchors
// and tags.
func (d *decoder) plain(n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.fault(at(n), "write the value itself", "aliases are not taken")
	case n.Anchor != "":
		d.fault(at(n), "drop &"+n.Anchor, "anchors are not taken")
	case n.Style&yaml.TaggedStyle != 0:
		d.fault(at(n), "drop "+n.Tag, "tags are not taken")
	default:
		return true
	}
	return false
}

// mapping reads n, called what in messages, by its fields.
func (d *decoder) mapping(n *yaml.Node, what string, fields []field) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	for key, value := range d.pairs(n, what) {
		known := false
		for _, f := range fields {
			if f.name == key.Value {
				known = true
				if isNull(value) {
					d.fault(at(key), "give it a value or drop it", "%s is empty", key.Value)
				} else if d.plain(value) {
					d.key = at(key)
					f.read(value)
				}
			}
		}
		if !known {
			d.fault(at(key), d.keyHint(key.Value, what, names), "%s has no key %s", what, quote(key.Value))
		}
	}
}

// pairs yields the keys and values of the mapping n; it notes faults for what
// is no mapping, for keys that are no text, and for keys written twice.
func (d *decoder) pairs(n *yaml.Node, what string) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		if n.Kind != yaml.MappingNode {
			d.fault(at(n), "write key: value lines, or {key: value}", "%s is not a mapping", what)
			return
		}
		first := map[string]Pos{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if !d.plain(key) {
				continue
			}
			if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
				d.fault(at(key), "a key is a word; quote it if it looks like a number", "a key of %s is not text", what)
				continue
			}
			if p, twice := first[key.Value]; twice {
				d.fault(at(key), "keep one of them", "%s is already in line %d", quote(key.Value), p.Line)
				continue
			}
			first[key.Value] = at(key)
			if !yield(key, value) {
				return
			}
		}
	}
}

// keyHint finds the key that was meant: of this mapping, or one that belongs
// to another section.
func (d *decoder) keyHint(got, what string, names []string) string {
	if len(d.faults) > maxFaults {
		return "" // it will not be shown, and finding it takes time
	}
	own := nearest(got, names)
	if own == synonym(got) {
		return "did you mean " + own + "?"
	}
	for _, section := range d.top() {
		for _, name := range sectionKeys(section.name) {
			if name == synonym(got) && section.name != what {
				return "did you mean " + section.name + ": {" + name + ": …}?"
			}
		}
		if section.name == synonym(got) {
			return section.name + " belongs to the top level: check the indentation"
		}
	}
	if own != "" {
		return "did you mean " + own + "?"
	}
	return "known are " + strings.Join(names, ", ")
}

// list reads each item of the sequence n.
func (d *decoder) list(n *yaml.Node, what string, read func(n *yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		d.fault(at(n), "write a list: [one, two] or lines that begin with -", "%s is not a list", what)
		return
	}
	for _, item := range n.Content {
		if d.plain(item) {
			read(item)
		}
	}
}

// value reads a scalar through parse and returns its place, or notes a fault
// and returns the zero Pos.
func (d *decoder) value(n *yaml.Node, what string, s scalar, parse func(string) error) Pos {
	switch {
	case n.Kind != yaml.ScalarNode:
		d.fault(at(n), "write one value", "%s is not %s", what, s.describe())
		return Pos{}
	case isNull(n):
		d.fault(at(n), "give it a value or drop it", "%s is empty", what)
		return Pos{}
	case !s.takes(n.ShortTag()):
		hint := "write " + s.describe()
		if n.ShortTag() == "!!str" {
			hint += " without quotes"
		} else if s == scalarText {
			hint = `put it in quotes: "` + n.Value + `"`
		}
		// 30 for a duration has no unit; its parser knows what was meant.
		if !d.parse(n, what, parse) {
			return Pos{}
		}
		d.fault(at(n), hint, "%s: %s is not %s", what, quote(n.Value), s.describe())
		return Pos{}
	case !d.parse(n, what, parse):
		return Pos{}
	}
	return at(n)
}

// parse notes what parse says against n's value.
func (d *decoder) parse(n *yaml.Node, what string, parse func(string) error) bool {
	err := parse(n.Value)
	if err == nil {
		return true
	}
	var e *sandbox.Error
	if !errors.As(err, &e) {
		e = invalid("", "%v", err)
	}
	d.fault(at(n), e.Hint, "%s", what+": "+e.Problem)
	return false
}

// text reads a text that check accepts.
func (d *decoder) text(n *yaml.Node, what string, check func(string) error) Value[string] {
	if p := d.value(n, what, scalarText, check); p.Said() {
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			if d.quoted == nil {
				d.quoted = map[Pos]bool{}
			}
			d.quoted[p] = true
		}
		return Value[string]{n.Value, p}
	}
	return Value[string]{}
}

// texts reads a list of texts that check accepts.
func (d *decoder) texts(n *yaml.Node, what string, check func(string) error) []Value[string] {
	out := []Value[string]{}
	d.list(n, what, func(n *yaml.Node) {
		if v := d.text(n, what, check); v.Said() {
			out = append(out, v)
		}
	})
	return out
}

// boolean reads true or false.
func (d *decoder) boolean(n *yaml.Node, what string) Value[bool] {
	p := d.value(n, what, scalarBool, func(s string) error {
		if s != "true" && s != "false" {
			return invalid("write true or false", "%s is not true or false", quote(s))
		}
		return nil
	})
	return Value[bool]{p.Said() && n.Value == "true", p}
}

// oneOf makes a check for one of words.
func oneOf(words ...string) func(string) error {
	return func(s string) error {
		for _, w := range words {
			if s == w {
				return nil
			}
		}
		return invalid(didYouMean(s, words), "%s is not known", quote(s))
	}
}
