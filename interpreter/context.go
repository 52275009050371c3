// SPDX-License-Identifier: Apache-2.0

package interpreter

import "strings"

// The languages that have kernels of our own. Any other name is that of an installed
// Jupyter kernel.
const (
	Python     = "python"
	JavaScript = "javascript"
	TypeScript = "typescript" // run by the kernel of JavaScript
	Bash       = "bash"
)

// Language is the language that a caller means: "py", "js", "ts" and "sh" are short for
// ours, "" is Python, and what is not known stays as it is. Ours are known in any case:
// policies have rules by language, and "Python" is to meet those of Python.
func Language(name string) string {
	switch l := strings.ToLower(name); l {
	case "", "py", "python3":
		return Python
	case "js", "node":
		return JavaScript
	case "ts":
		return TypeScript
	case "sh", "shell":
		return Bash
	case Python, JavaScript, TypeScript, Bash:
		return l
	}
	return name
}

// Own says whether caisson has a kernel of its own for a language, as [Language] names it.
// What another kernel runs is known inside alone: a kernel's name says nothing of it.
func Own(language string) bool {
	switch language {
	case Python, JavaScript, TypeScript, Bash:
		return true
	}
	return false
}

// Context is a kernel of one language with the state that its cells have left.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"dir"`
	// Executions is how many cells it has begun since its kernel started.
	Executions int  `json:"executions"`
	Busy       bool `json:"busy,omitempty"` // a cell runs
}

// ContextOptions are what a context is made with. The zero value is Python in the home
// directory.
type ContextOptions struct {
	// ID names the context. A new one is made up when it is empty; one that exists is
	// an error (ErrInvalid).
	ID       string            `json:"id,omitempty"`
	Language string            `json:"language,omitempty"`
	Dir      string            `json:"dir,omitempty"` // absolute, inside
	Env      map[string]string `json:"env,omitempty"` // on top of the sandbox's
}
