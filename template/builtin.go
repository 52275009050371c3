// SPDX-License-Identifier: Apache-2.0

package template

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed builtin/*.yaml
var builtin embed.FS

// Builtin is the template.yaml of a template that caisson knows by name; nil for a name that
// is none of them. See Builtins.
func Builtin(name string) []byte {
	b, err := fs.ReadFile(builtin, "builtin/"+name+".yaml")
	if err != nil {
		return nil
	}
	return b
}

// Builtins are the names of the templates that caisson knows, sorted.
func Builtins() []string {
	list, _ := fs.ReadDir(builtin, "builtin") // it is in the program
	var names []string
	for _, e := range list {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}
