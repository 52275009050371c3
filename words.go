// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"errors"
	"regexp"

	"github.com/caisson-run/caisson/sandbox"
)

// fieldOf are the fields of a Request that flags of caisson run stand for.
var fieldOf = map[string]string{
	"--mount": "Mounts", "--workspace": "Workspace", "--changes": "KeepChanges", "--git": "GitWrite",
	"--collect": "Collect", "--collect-overwrite": "CollectOverwrite", "--collect-files": "CollectLimits.Files", "--collect-size": "CollectLimits.Bytes",
	"--allow": "Allow", "--secret": "Secrets", "--upstream-ca": "UpstreamCA", "--isolation": "Isolation", "--image": "Image",
	"--lang": "Language", "--env": "Env", "--workdir": "Dir", "--best-effort": "BestEffort",
	"--timeout": "Limits.Wall", "--cpu-time": "Limits.CPUTime", "--cpus": "Limits.CPUs", "--memory": "Limits.Memory", "--processes": "Limits.Processes",
	"--open-files": "Limits.OpenFiles", "--file-size": "Limits.FileSize", "--disk": "Limits.Disk", "--inodes": "Limits.Inodes", "--tmp": "Limits.Tmp",
	"--output": "Limits.Output",
}

var flagWord = regexp.MustCompile(`--[a-z]+(-[a-z]+)*`)

// forGo says in an error's text which field of a Request helps, where it says which flag
// does. Flags that no field stands for stay.
func forGo(err error) error {
	var e *sandbox.Error
	if !errors.As(err, &e) || error(e) != err {
		return err // joined with others, or of something else
	}
	said := *e
	for _, text := range []*string{&said.Op, &said.Problem, &said.Hint} {
		*text = flagWord.ReplaceAllStringFunc(*text, func(flag string) string {
			if field, ok := fieldOf[flag]; ok {
				return "Request." + field
			}
			return flag
		})
	}
	return &said
}
