// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"testing"

	"github.com/caisson-run/caisson/interpreter"
)

// A spelling of a language does not evade what a policy says of it.
func TestLanguage(t *testing.T) {
	for name, want := range map[string]string{
		"": interpreter.Python, "py": interpreter.Python, "Python": interpreter.Python, "PYTHON3": interpreter.Python, "Py": interpreter.Python,
		"JS": interpreter.JavaScript, "JavaScript": interpreter.JavaScript, "Node": interpreter.JavaScript, "TypeScript": interpreter.TypeScript,
		"BASH": interpreter.Bash, "Sh": interpreter.Bash, "ir": "ir", "Julia": "Julia",
	} {
		if got := interpreter.Language(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
