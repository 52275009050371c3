// SPDX-License-Identifier: Apache-2.0

package shell

import "strings"

// options is how a program reads its options; what is not in it is not judged.
type options struct {
	flags    string // letters without a value
	args     string // letters with a value, in the same word or the next
	attached string // letters whose value, if any, is in the same word
	long     string // names without a value, separated by spaces
	longArg  string // names with a value, after = or in the next word
}

// has says that name is one of list's words, which have a space between them.
func has(list, name string) bool {
	for from := 0; name != ""; {
		i := strings.Index(list[from:], name)
		if i < 0 {
			return false
		}
		i += from
		from = i + len(name)
		if (i == 0 || list[i-1] == ' ') && (from == len(list) || list[from] == ' ') {
			return true
		}
	}
	return false
}

// end is the index of the first word from i on that is no option. Every word
// before it is known; where one is not, or is no option of o, the second result
// is the word's index.
func (o *options) end(words []Word, i int) (end, strange int) {
	for ; i < len(words); i++ {
		w := words[i]
		switch {
		case !w.Static && w.plain():
			return i, -1
		case !w.Static:
			return i, i
		case w.Text == "--":
			return i + 1, -1
		case len(w.Text) < 2 || w.Text[0] != '-':
			return i, -1
		}
		next, ok := o.option(w)
		if !ok {
			return i, i
		}
		if next == 1 && i+1 < len(words) && !words[i+1].one() {
			return i + 1, i + 1 // what else it becomes is no value
		}
		i += next
	}
	return min(i, len(words)), -1
}

// option reads a word that begins with a dash; next is 1 when the word that follows
// is its value, ok is false when it is no option of o.
func (o *options) option(w Word) (next int, ok bool) {
	name, isLong := strings.CutPrefix(w.Text, "--")
	if !isLong {
		return o.cluster(w.Text[1:])
	}
	name, _, given := strings.Cut(name, "=")
	switch {
	case has(o.longArg, name) && !given:
		return 1, true
	case has(o.long, name), has(o.longArg, name):
		return 0, true
	}
	return 0, false
}

// cluster reads letters behind one dash; next is 1 when the last one takes the
// word that follows.
func (o *options) cluster(letters string) (next int, ok bool) {
	for j := 0; j < len(letters); j++ {
		switch c := letters[j]; {
		case strings.IndexByte(o.flags, c) >= 0:
		case strings.IndexByte(o.attached, c) >= 0:
			return 0, true
		case strings.IndexByte(o.args, c) >= 0:
			if j == len(letters)-1 {
				return 1, true
			}
			return 0, true
		default:
			return 0, false
		}
	}
	return 0, true
}
