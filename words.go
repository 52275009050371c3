// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"

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

// field is what a flag is called for the caller who gave a value of that type: what a Create
// or an Exec does not have, the other or a Request has. It is empty for a flag that no field
// stands for.
func field(of, flag string) string {
	name := fieldOf[flag]
	program := slices.Contains([]string{"Language", "Dir"}, name)
	switch {
	case name == "":
		return ""
	case of == "Exec" && flag == "--timeout":
		return "Exec.Timeout"
	case of != "Request" && (name == "KeepChanges" || strings.HasPrefix(name, "Collect")):
		of = "Request"
	case of == "Create" && program:
		of = "Exec"
	case of == "Exec" && !program && name != "Env":
		of = "Create"
	}
	return of + "." + name
}

// forGo says in an error's text which field of the type of that name helps, where it says
// which flag does. Flags that no field stands for stay.
func forGo(of string, err error) error {
	var e *sandbox.Error
	if !errors.As(err, &e) || error(e) != err {
		return err // joined with others, or of something else
	}
	said := *e
	for _, text := range []*string{&said.Op, &said.Problem, &said.Hint} {
		*text = flagWord.ReplaceAllStringFunc(*text, func(flag string) string {
			return cmp.Or(field(of, flag), flag)
		})
	}
	return &said
}
