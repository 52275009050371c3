// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/interpreter"
)

// Ten megabytes come whole: as output of the kernel's own, of a program, and as a result.
func TestLargeOutput(t *testing.T) {
	const large = 10_000_000
	b := bare(t)
	for name, tt := range map[string]struct {
		language, code string
		count          func(o *told) int
	}{
		"print":   {interpreter.Python, "print('x' * 10_000_000, end='')", func(o *told) int { return len(o.out) }},
		"lines":   {interpreter.Python, "for i in range(10_000): print('x' * 999)", func(o *told) int { return len(o.out) }},
		"program": {interpreter.Python, "import subprocess\nx = subprocess.run(['head', '-c', '10000000', '/dev/zero'])", func(o *told) int { return len(o.out) }},
		"display": {interpreter.Python, "display({'text/html': 'x' * 10_000_000}, raw=True)", func(o *told) int { return len(text(o.results[0], "text/html")) }},
		"shell":   {interpreter.Bash, "yes xxxxxxxxx | head -c 10000000", func(o *told) int { return len(o.out) }},
		"node":    {interpreter.JavaScript, "process.stdout.write('x'.repeat(10_000_000)); undefined", func(o *told) int { return len(o.out) }},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.language == interpreter.JavaScript {
				need(t, "node")
			}
			if o := b.code(tt.language, tt.code); o.end.Status != interpreter.Done || tt.count(o) != large {
				t.Errorf("%d bytes, %+v", tt.count(o), o.end)
			}
		})
	}
}

// A text of a value has its bound, and says so.
func TestLargeValue(t *testing.T) {
	pythons(t, func(t *testing.T, b *bench) {
		o := b.code(interpreter.Python, "class R:\n    def __repr__(self): return 'x' * 50_000_000\nR()")
		if s := o.main(); len(s) > 2<<20 || !strings.Contains(s, "more)") || o.end.Status != interpreter.Done {
			t.Errorf("%d bytes, %+v", len(s), o.end)
		}
	})
}
