// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const presetPrefix = "preset:"

// presets are what people type first. Each is what the tool needs to fetch
// packages from its usual place, and nothing that takes uploads elsewhere.
var presets = map[string][]string{
	"pip": {"pypi.org:443", "files.pythonhosted.org:443"},
	"npm": {"registry.npmjs.org:443"},
	"go":  {"proxy.golang.org:443", "sum.golang.org:443"},
	"git": {"github.com:443", "gitlab.com:443", "bitbucket.org:443", "codeberg.org:443"},
	"apt": {
		"deb.debian.org", "security.debian.org",
		"archive.ubuntu.com", "*.archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com",
	},
}

// Presets are the names that "preset:" takes.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

func preset(which, from string) ([]Rule, error) {
	entries, ok := presets[which]
	if !ok {
		return nil, fmt.Errorf("there is no preset %q; there are %s", which, strings.Join(Presets(), ", "))
	}
	var rules []Rule
	for _, e := range entries {
		r, err := parse(e, from, webPorts)
		if err != nil {
			return nil, err
		}
		r.preset = which
		rules = append(rules, r)
	}
	return rules, nil
}

// PresetOf is the entry of the preset that lets connections to n at port through, where n
// is a host of one; empty where it is not. Port 0 is any.
func PresetOf(n Name, port uint16) string {
	for _, which := range Presets() {
		rules, _ := preset(which, "")
		for _, r := range rules {
			if r.host.Match(n) && (port == 0 || r.ports.has(port)) {
				return presetPrefix + which
			}
		}
	}
	return ""
}
