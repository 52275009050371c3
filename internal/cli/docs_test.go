// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"mvdan.cc/sh/v3/syntax"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/template"
)

// What the documents tell people to type is there: commands, their flags, and what
// policy files may say.

// documents are those that people read, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	decisions, derr := filepath.Glob("../../docs/decisions/*.md")
	security, serr := filepath.Glob("../../docs/security/*.md")
	if err = errors.Join(err, derr, serr); err != nil {
		t.Fatal(err)
	}
	files = slices.Concat(files, decisions, security)
	out := map[string]string{}
	for _, name := range append(files, "../../README.md", "../../SECURITY.md", "../../CONTRIBUTING.md", "../../ARCHITECTURE.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(name, "../../")] = string(text)
	}
	return out
}

var (
	fenced = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	inline = regexp.MustCompile("`([^`\n]+)`")
)

func TestDocumentedCommands(t *testing.T) {
	checked := 0
	for name, text := range documents(t) {
		var code []string
		for _, m := range fenced.FindAllStringSubmatch(text, -1) {
			if m[1] == "sh" || m[1] == "console" || m[1] == "" && !strings.Contains(m[2], "─") { // no figure
				code = append(code, strings.Split(strings.ReplaceAll(m[2], "\\\n", " "), "\n")...)
			}
		}
		for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			code = append(code, m[1])
		}
		for _, line := range code {
			for _, args := range commandLines(strings.TrimPrefix(line, "$ ")) {
				checked++
				checkCommandLine(t, name, args)
			}
		}
	}
	if checked < 100 {
		t.Errorf("found %d command lines", checked)
	}
}

// Help and man pages say what a flag takes, by a word that its sentence is about, and
// never how Go stores it.
func TestFlagsNameWhatTheyTake(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(f); value != "" && strings.ToLower(value) == value {
				t.Errorf("%s --%s %s", cmd.CommandPath(), f.Name, value)
			}
		})
		var page strings.Builder
		if err := manPage(&page, cmd); err != nil || strings.Contains(page.String(), "`") || strings.Contains(page.String(), "STRING") {
			t.Errorf("%s: %v\n%s", manName(cmd), err, page.String())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&app{}).root())
}

// What --help shows as examples, too.
func TestExampleCommands(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Example == "" && !cmd.HasSubCommands() && cmd.Name() != "help" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			for _, args := range commandLines(line) {
				checkCommandLine(t, cmd.CommandPath()+" --help", args)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&app{}).root())
}

// commandLines are the arguments of each caisson that a line of shell starts.
func commandLines(line string) (out [][]string) {
	f, err := syntax.NewParser().Parse(strings.NewReader(line), "")
	if err != nil {
		return nil // prose, or what a program printed
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 || call.Args[0].Lit() != "caisson" {
			return true
		}
		args := []string{}
		for _, w := range call.Args[1:] {
			if w.Lit() == "" {
				args = append(args, "quoted")
				continue
			}
			args = append(args, w.Lit())
		}
		out = append(out, args)
		return true
	})
	return out
}

// checkCommandLine looks for the command, and for its flags up to what is the
// program's own.
func checkCommandLine(t *testing.T, name string, args []string) {
	a := &app{}
	var words []string
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			break
		}
		words = append(words, arg)
	}
	cmd, rest, err := a.root().Find(words)
	if err != nil {
		t.Errorf("%s: caisson %s: %v", name, strings.Join(args, " "), err)
		return
	}
	if len(rest) > 0 && cmd.HasSubCommands() && !strings.Contains(rest[0], "|") {
		t.Errorf("%s: caisson %s: there is no such command", name, strings.Join(args, " "))
		return
	}
	depth := strings.Count(cmd.CommandPath(), " ")
	for _, arg := range args[min(depth, len(args)):] {
		flag, _, _ := strings.Cut(arg, "=")
		long, isLong := strings.CutPrefix(flag, "--")
		switch {
		case arg == "--":
			return
		case isLong && cmd.Flag(long) == nil && long != "help":
			t.Errorf("%s: caisson %s: there is no flag --%s", name, strings.Join(args, " "), long)
		}
	}
}

// A block of YAML is a policy file, or sections of one, and a template.yaml where it says
// where a template starts.
func TestDocumentedPolicies(t *testing.T) {
	checked := 0
	for name, text := range documents(t) {
		for _, m := range fenced.FindAllStringSubmatch(text, -1) {
			if m[1] != "yaml" {
				continue
			}
			checked++
			source := m[2]
			if strings.HasPrefix(source, "from:") {
				if _, err := template.ParseYAML("template.yaml", []byte(source), template.Options{}); err != nil {
					t.Errorf("%s: %v\n%s", name, err, source)
				}
				continue
			}
			if !strings.Contains("\n"+source, "\nversion:") {
				source = "version: 1\n" + source
			}
			f, err := policy.Parse("/project/caisson.yaml", []byte(source))
			if err == nil {
				_, err = policy.New(policy.Options{File: f})
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, m[2])
			}
		}
	}
	if checked < 15 {
		t.Errorf("found %d policies", checked)
	}
}

// What a policy file may say stands in a document that says how it is used.
func TestDocumentedPolicyKeys(t *testing.T) {
	var all strings.Builder
	for name, text := range documents(t) {
		switch {
		case strings.HasPrefix(name, "docs/decisions/"), strings.HasPrefix(name, "docs/security/"): // why, not how
		case name == "SECURITY.md", name == "ARCHITECTURE.md", name == "CONTRIBUTING.md": // they say other things
		default:
			all.WriteString(text)
		}
	}
	word := map[string]bool{}
	for _, w := range regexp.MustCompile(`[A-Za-z_]+`).FindAllString(all.String(), -1) {
		word[w] = true
	}
	var schema any
	if err := json.Unmarshal(policy.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	checked := 0
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case []any:
			for _, sub := range v {
				walk(path, sub)
			}
		case map[string]any:
			for name, sub := range v {
				keys, ok := sub.(map[string]any)
				if name != "properties" || !ok {
					walk(path, sub)
					continue
				}
				for key, what := range keys {
					if checked++; !word[key] {
						t.Errorf("no document says what %s.%s is", path, key)
					}
					walk(path+"."+key, what)
				}
			}
		}
	}
	walk("", schema)
	if checked < 50 {
		t.Errorf("found %d keys", checked)
	}
}

// The list of what caisson sandbox does has all of it.
func TestDocumentedSandboxCommands(t *testing.T) {
	list := regexp.MustCompile("`caisson sandbox ([a-z|]+)`").FindStringSubmatch(documents(t)["docs/api.md"])
	if list == nil {
		t.Fatal("there is no list")
	}
	cmd, _, err := (&app{}).root().Find([]string{"sandbox"})
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range cmd.Commands() {
		if !slices.Contains(strings.Split(list[1], "|"), sub.Name()) {
			t.Errorf("caisson sandbox %s is not in docs/api.md", sub.Name())
		}
	}
}
