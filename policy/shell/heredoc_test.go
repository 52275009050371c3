// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"
	"testing"
)

// TestPlainHereDocuments: what agents write is judged, in both dialects, and their text is
// known.
func TestPlainHereDocuments(t *testing.T) {
	for _, l := range []string{
		"cat <<EOF\nx $HOME \\$x \\\\ \"y\" 'z' #\nEOF", "cat > f <<'EOF'\nx = `y` $(z) ${a} \\\nEOF\nls", "cat <<-EOF\n\tx\n\tEOF\nls", "cat <<'A' >a; cat <<'B' >b\n1\nA\n2\nB\nls", "cat <<A <<'B'\n1\nA\n2\nB",
		"git commit -m \"$(cat <<'EOF'\nTitle\n\nIt's \"text\" with `ticks`, $(x) and ${y}\nEOF\n)\"", "git commit -m \"$(cat <<'EOF'\nTitle\nEOF\n)\" && git status", "x=$(cat <<'E'\nE\n); ls", "( cat <<E )\nx\nE", "f() { cat <<E; }\nx\nE\nf",
		"for i in 1 2; do cat <<E\n$i\nE\ndone", "if ls; then cat <<'E-O_F.1'\nE-O_F.2\nE-O_F.1\nfi", "cat <<'END OF'\nEND\nEND OF", "cat << E\nEOF\nE", "while read -r x; do echo \"$x\"; done <<E\n1\nE", "cat <<E # it's a comment\nx\nE", "cat <<E\nE", "cat <<E | head && ls\nx\nE",
		"grep '<<<<<<< HEAD' f; echo \"a << b\"; echo $((1 << 3)) # <<E", "bash -c 'cat <<E\nx\nE'", "cat <<E &\nx\nE",
	} {
		for _, d := range []Dialect{Bash, POSIX} {
			if why := denied(Line(l, d)); why != "" {
				t.Errorf("dialect %d refuses %q: %s", d, l, why)
			}
		}
	}
	for l, want := range map[string]string{
		"cat <<E\na \\$x \\\\ \\\" \\a\n\nE\n": "a $x \\ \\\" \\a\n\n", "cat <<'E'\n\\$x\\\nE\n": "\\$x\\\n", "cat <<-E\n\t\ta\tb\n\n\tc\n\tE": "a\tb\n\nc\n", "cat <<-'E'\n\tE": "", "cat <<E\nE": "",
	} {
		if s := Line(l, Bash); len(s.Commands) != 1 || s.Commands[0].Input.Text == nil || *s.Commands[0].Input.Text != want {
			t.Errorf("%q: %+v", l, s)
		}
	}
}

// TestOtherHereDocuments: any other is refused, with its place.
func TestOtherHereDocuments(t *testing.T) {
	for _, c := range []struct{ line, at, why string }{
		{"ls; cat <<\"E\"\nE", "1:11", "delimiter"}, {"cat <<\\E\nE", "1:7", "delimiter"}, {"cat <<$'E'\nE", "1:7", "delimiter"}, {"cat <<E'F'\nEF", "1:7", "delimiter"}, {"cat <<'E'F\nEF", "1:7", "delimiter"}, {"cat <<''\n\n", "1:7", "delimiter"}, {"cat << -E\n-E", "1:8", "delimiter"},
		{"cat <<'E$F'\nE$F", "1:7", "delimiter"}, {"cat <<E#F\nE#F", "1:7", "delimiter"}, {"cat <<\\\n-E\n-E", "1:7", "delimiter"}, {"cat <<\\\nE\nE", "1:7", "delimiter"},
		{"cat <<E\na\nb\\\nx\nE", "3:1", "ends with a backslash"}, {"cat <<E\na\n `\n`\nE", "3:1", "has `"}, {"cat <<E\n$(ls)\nE", "2:1", "has $("}, {"cat <<E\n${x}\nE", "2:1", "has ${"}, {"cat <<E\n$[1]\nE", "2:1", "has $["},
		{"echo $(cat <<E\nx\nE\n)", "1:14", "within $( )"}, {"echo $(cat <<'E'\nx\nE)\nE\n)", "3:1", "begins with E)"}, {"echo $(cat <<'E')\nx\nE\n", "3:1", "before the )"}, {"cat <<E $(ls\n)\nE", "2:1", "begins or ends"},
		{"echo `cat <<'E'\nx\nE\n`", "1:11", "backquotes"}, {"cat <(cat <<'E'\nx\nE\n)", "1:11", "<( )"}, {"echo ${x:-$(cat <<'E'\nx\nE\n)}", "1:17", "${ }"}, {"x=($(cat <<'E'\nx\nE\n))", "1:10", "list"},
		{"cat <<E \\\nx\nE", "2:1", "begins or ends"}, {"cat <<E \"\nx\"\nE", "2:1", "begins or ends"}, {"cat <<E\n$$E\nls\nE", "2:1", "begins or ends"}, {"ls; bash -c 'cat <<\"E\"\nE'", "1:13", "delimiter"},
	} {
		s := Line(c.line, Bash)
		if len(s.Refusals) == 0 || s.Refusals[0].At.String() != c.at || !strings.Contains(s.Refusals[0].Why, c.why) {
			t.Errorf("%q: %+v, want %s at %s", c.line, s.Refusals, c.why, c.at)
		}
	}
}

// TestManyHereDocuments: time is linear in the text, whatever it has of them.
func TestManyHereDocuments(t *testing.T) {
	n := MaxLine / 16
	for _, l := range []string{
		"cat" + strings.Repeat(" <<E", 2*n) + strings.Repeat("\nE", 2*n), strings.Repeat("cat <<E\nx\nE\n", n), strings.Repeat("cat <<E &&\nE\n", n) + "ls", "cat <<E\n" + strings.Repeat("E \n", 3*n) + "E",
	} {
		if s := Line(l, Bash); len(s.Refusals) > 0 || len(s.Commands) == 0 {
			t.Errorf("%.40q: %+v", l, s.Refusals)
		}
	}
}
