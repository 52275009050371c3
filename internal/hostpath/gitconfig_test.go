// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// configTexts are configurations, each with what of it is not plain.
var configTexts = map[string]struct {
	text string
	not  []string
}{
	"of git init":         {"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n", nil},
	"of git clone":        {"[remote \"origin\"]\n\turl = https://example.com/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n", nil},
	"nothing":             {"", nil},
	"a program":           {"[core]\n\tfsmonitor = \"touch x; false\"\n", []string{"core.fsmonitor"}},
	"on the head's line":  {"[core] fsmonitor = x", []string{"core.fsmonitor"}},
	"upper case":          {"[CORE]\n\tFsMonitor = x\n", []string{"core.fsmonitor"}},
	"after a comment":     {"# [core] bare\n[core] ; fsmonitor = y\n\tfsmonitor = x\n", []string{"core.fsmonitor"}},
	"a value goes on":     {"[user]\n\tname = a\\\n[core]\n\tbare = false\n\tfsmonitor = x\n", []string{"user.bare", "user.fsmonitor"}},
	"a quoted bracket":    {"[user]\n\tname = \"[core]\"\n[core]\n\tsshCommand = x\n", []string{"core.sshcommand"}},
	"old form of head":    {"[remote.origin]\n\turl = x\n", []string{"remote.origin.url"}},
	"sub-section":         {"[filter \"x\"]\n\tclean = x\n", []string{"filter.x.clean"}},
	"include":             {"[include]\n\tpath = ../x\n", []string{"include.path"}},
	"a transport program": {"[remote \"o\"]\n\turl = ext::sh -c x\n", []string{"remote.o.url"}},
	"an option as URL":    {"[remote \"o\"]\n\turl = -x\n", []string{"remote.o.url"}},
	"update by program":   {"[submodule \"s\"]\n\tupdate = !x\n", []string{"submodule.s.update"}},
	"a carriage return":   {"[user]\r\n\tname = a\r\n", nil},
	"another section":     {"[alias]\n\tst = status\n", []string{"alias.st"}},
	"not git's":           {"[core\nfsmonitor = x\n", []string{"a line that git does not read"}},
	"a NUL":               {"[user]\n\tname = a\x00\n", []string{"a line that git does not read"}},
	"another worktree":    {"[core]\n\tworktree = /\n", []string{"core.worktree"}},
}

func TestGitConfigPlain(t *testing.T) {
	for name, tt := range configTexts {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.not, notPlain([]byte(tt.text), false), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What git itself reads of a file is what is read here.
func TestGitConfigIsReadAsGitReadsIt(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	texts := []string{"[a]\nb\n", "[a \"x\\\"y\\\\z\"]\nb = \" x \" y # z\n", "[a]b=c;d\n", "[a]\nb = c\\\nd\n", "[a]\nb=\"c\nd\"\n", "[a]\nb-c1 = \\t\\n\\b\\\\x\n", "[A.B]\nC=d\n",
		"[a] b = c [d]\n", "\uFEFF[a]\nb=c\n", "[a]\nb\rc = d\n", "[a ]\nb=c\n", "[a]\n1b=c\n", "b=c\n", "[a]\nb = \\x\n", "[a]\r\nb = c\r\n", "[a]\nb =  c  \n", "[a]\nb=c\\", "[a\"x\"]\nb=c\n", "[a  \"x\"]\nb=c\n"}
	for _, tt := range configTexts {
		texts = append(texts, tt.text)
	}
	for _, text := range texts {
		if strings.Contains(text, "\x00") {
			continue
		}
		file := filepath.Join(t.TempDir(), "config")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		out, err := exec.Command(git, "config", "--file", file, "--null", "--list").Output()
		settings, fault := parseGitConfig([]byte(text))
		if (err != nil) != (fault != nil) {
			t.Errorf("%q: git says %v, we say %v", text, err, fault)
			continue
		}
		if err != nil {
			continue
		}
		var want, got []string
		for s := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if name, value, ok := strings.Cut(s, "\n"); ok {
				want = append(want, name+"="+value)
			} else if name != "" {
				want = append(want, name+"=true")
			}
		}
		for _, s := range settings {
			got = append(got, s.name()+"="+s.value)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

// A program is found whatever stands before it, or the whole is not plain.
func FuzzGitConfig(f *testing.F) {
	for _, tt := range configTexts {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(notPlain([]byte(text+"\n\n[core]\n\tfsmonitor = x\n"), true)) == 0 {
			t.Errorf("%q and core.fsmonitor are plain", text)
		}
		settings, _ := parseGitConfig([]byte(text))
		gitTargets(settings)
	})
}
