// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"embed"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

//go:embed preset/*.yaml
var presets embed.FS

// PresetPrefix is what the Name of a File begins with that is a preset.
const PresetPrefix = "preset "

// Presets lists the names of the starters that Preset has.
func Presets() []string {
	return []string{"locked-down", "data-analysis", "build", "coding-agent", "e2b"}
}

// Preset is a commented policy file to start from. A name that is not in
// Presets is ErrNotFound.
func Preset(name string) ([]byte, error) {
	for _, p := range Presets() {
		if p == name {
			return presets.ReadFile("preset/" + name + ".yaml")
		}
	}
	hint := "known are " + strings.Join(Presets(), ", ")
	if near := nearest(name, Presets()); near != "" {
		hint = "did you mean " + near + "? " + hint
	}
	return nil, &sandbox.Error{Op: "preset " + quote(name), Kind: sandbox.ErrNotFound, Problem: "there is no such preset", Hint: hint}
}
