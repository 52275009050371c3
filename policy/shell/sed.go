// SPDX-License-Identifier: Apache-2.0

package shell

import "strings"

// sed: its scripts may execute a line (e, s///e) and write files (w).
func sed(s *scope, c *Command, _ stdin) {
	o := options{flags: "nErsuzb", args: "el", attached: "i", long: "quiet silent regexp-extended separate unbuffered null-data posix sandbox debug in-place", longArg: "expression line-length"}
	given, files := false, false
	for i := 1; i < len(c.Words); i++ {
		w := c.Words[i]
		if files && given {
			return
		}
		if !w.known() && !files {
			c.need(i, i+1, "may be a script of sed's, unless -- stands before it")
			return
		}
		if files || !strings.HasPrefix(w.Text, "-") || w.Text == "-" || !w.Static {
			if !given {
				given = true
				s.sedScript(c, i, w)
			}
			continue
		}
		if w.Text == "--" {
			files = true
			continue
		}
		next, ok := o.option(w)
		if !ok || next == 1 && i+1 < len(c.Words) && !c.Words[i+1].one() {
			c.need(i, min(i+2, len(c.Words)), "reads a script of sed's from a file")
			given = true
			continue
		}
		if v, isE := sedExpression(w.Text); isE {
			given = true
			switch {
			case v != "":
				s.sedScript(c, i, Word{Text: v, Static: true, At: w.At})
			case i+1 < len(c.Words):
				i++
				s.sedScript(c, i, c.Words[i])
			}
		} else {
			i += next
		}
	}
}

// sedExpression is the script in -e, -ne, --expression=; empty when it is the
// next word.
func sedExpression(w string) (string, bool) {
	if v, ok := strings.CutPrefix(w, "--expression"); ok {
		return strings.TrimPrefix(v, "="), true
	}
	if strings.HasPrefix(w, "--") {
		return "", false
	}
	for i := 1; i < len(w); i++ {
		if w[i] == 'i' || w[i] == 'l' {
			return "", false
		}
		if w[i] == 'e' {
			return w[i+1:], true
		}
	}
	return "", false
}

func (s *scope) sedScript(c *Command, i int, w Word) {
	if !w.Static || !sedIsQuiet(w.Text) {
		c.need(i, i+1, "may execute a line of its input, or write a file")
	}
}

// sedIsQuiet reads a script and says that it has neither e nor w. What it
// cannot read is not quiet.
func sedIsQuiet(p string) bool {
	for len(p) > 0 {
		switch p = strings.TrimLeft(p, " \t\n;{}!"); {
		case p == "":
			return true
		case strings.IndexByte("0123456789$,+~", p[0]) >= 0:
			p = p[1:]
		case p[0] == '/' || p[0] == '\\' && len(p) > 1:
			if p[0] == '\\' {
				p = p[1:]
			}
			_, rest, ok := sedPart(p[1:], p[0])
			if !ok {
				return false
			}
			p = strings.TrimLeft(rest, "IM")
		case strings.IndexByte("pPdDgGhHnNxzFqQl=", p[0]) >= 0:
			p = p[1:]
		case p[0] == 's' || p[0] == 'y':
			rest, ok := sedSubstitute(p)
			if !ok {
				return false
			}
			p = rest
		case strings.IndexByte("btT:", p[0]) >= 0:
			// A label ends at ; or at the end of the line, depending on the sed.
			end := strings.IndexAny(p, ";\n")
			if end < 0 {
				return true
			}
			if strings.Contains(p, "\n") && p[end] == ';' {
				return false
			}
			p = p[end:]
		case p[0] == 'r' || strings.IndexByte("aic#", p[0]) >= 0: // to the end of the line
			text := strings.IndexByte("aic", p[0]) >= 0
			line, rest, _ := strings.Cut(p, "\n")
			if text && rest != "" || strings.ContainsAny(line, ";}") && !text && p[0] != '#' {
				return false // where it ends depends on the sed
			}
			p = rest
		default: // e, w, W, R, v and what else there may be
			return false
		}
	}
	return true
}

// sedSubstitute reads s or y with its flags.
func sedSubstitute(p string) (rest string, ok bool) {
	if len(p) < 2 || p[1] == '\n' || p[1] == '\\' {
		return "", false
	}
	_, rest, ok = sedPart(p[2:], p[1])
	if ok {
		_, rest, ok = sedPart(rest, p[1])
	}
	if !ok {
		return "", false
	}
	if p[0] == 's' {
		rest = strings.TrimLeft(rest, "gpIiMm0123456789")
	}
	// Whatever stands here ends the command; e and w do not.
	return rest, rest == "" || strings.IndexByte(" \t\n;}", rest[0]) >= 0 && !strings.HasPrefix(strings.TrimLeft(rest, " \t"), "e") && !strings.HasPrefix(strings.TrimLeft(rest, " \t"), "w")
}

// sedPart is the text up to the delimiter. One within [ ] depends on the sed.
func sedPart(p string, delim byte) (part, rest string, ok bool) {
	if delim == '\n' || delim == '[' {
		return "", "", false
	}
	bracket := false
	for i := 0; i < len(p); i++ {
		switch {
		case p[i] == '\\':
			i++
		case p[i] == '[':
			bracket = true
		case p[i] == ']':
			bracket = false
		case p[i] == delim && bracket:
			return "", "", false
		case p[i] == delim:
			return p[:i], p[i+1:], true
		}
	}
	return "", "", false
}
