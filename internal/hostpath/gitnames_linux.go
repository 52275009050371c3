// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"io"
	"os"
	"path"
	"strings"
)

// GitNames are the paths in a working tree that make git run or read something: those that
// the repository's config names, the user's and the environment. Each has the setting that
// names it. top is where the working tree lies. What git would not read of a config counts
// up to the fault; files that a config includes are among the paths, and not read.
func GitNames(config []byte, top string) map[string]string {
	settings, _ := parseGitConfig(config)
	settings = append(settings, environmentSettings()...)
	for _, name := range usersConfigs() {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if text, err := io.ReadAll(io.LimitReader(f, maxGitConfig)); err == nil {
			more, _ := parseGitConfig(text)
			settings = append(settings, more...)
		}
		f.Close()
	}
	all := map[string]string{}
	for _, t := range gitTargets(settings) {
		name := t.path
		if home, ok := strings.CutPrefix(name, "~/"); ok {
			name = path.Join(os.Getenv("HOME"), home)
		}
		if !path.IsAbs(name) && t.include {
			name = path.Join(".git", name)
		}
		if path.IsAbs(name) {
			below, ok := strings.CutPrefix(path.Clean(name), strings.TrimSuffix(top, "/")+"/")
			if !ok {
				continue
			}
			name = below
		}
		if name = path.Clean(name); name != "." && name != ".." && !strings.HasPrefix(name, "../") {
			all[name] = t.setting
		}
	}
	return all
}
