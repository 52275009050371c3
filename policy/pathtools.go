// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// pathWord in files.toolchains stands for the directories of the caller's PATH.
const pathWord = "PATH"

// PlanPathTools are toolchains that the caller's PATH names. Which of its directories are
// shown depends on whose they are, and is told when they are open.
type PlanPathTools struct {
	Dirs []string `json:"dirs,omitempty"`
	From string   `json:"from"` // file:line
}

// dirs are the toolchains of f that are directories.
func (f *File) dirs() []Value[string] {
	return slices.DeleteFunc(slices.Clone(f.Files.Toolchains), func(v Value[string]) bool { return v.V == pathWord })
}

// pathTools is the place of PATH in the toolchains of f.
func (f *File) pathTools() Pos {
	for _, v := range f.Files.Toolchains {
		if v.V == pathWord {
			return v.At
		}
	}
	return Pos{}
}

// pathTools takes the caller's PATH, where the caller is the operator: the environment of
// a daemon is no client's.
func (d *decision) pathTools(f *File) *refusal {
	at := f.pathTools()
	if !at.Said() {
		return nil
	}
	if !d.ownRun() {
		return refuse(f.rule(at), "name the directories: files: {toolchains: [/opt/go]}", "the caller's PATH is for the operator's own runs")
	}
	if d.system != nil {
		if r := d.system.boundPathTools(); r != nil {
			return r
		}
	}
	p := &PlanPathTools{From: f.rule(at)}
	if d.call.Lookup != nil {
		list, _ := d.call.Lookup("PATH")
		p.Dirs = slices.DeleteFunc(filepath.SplitList(list), func(dir string) bool { return dir == "" })
	}
	d.plan.PathTools = p
	return nil
}

func (f *File) boundPathTools() *refusal {
	if f.pathTools().Said() {
		return nil
	}
	return refuse(f.rule(f.Files.At), f.add("files: {toolchains: [PATH]}"), "the policy does not show the toolchains of the caller's PATH")
}

func (e *explainer) pathTools() {
	if p := e.plan.PathTools; p != nil {
		e.add("files.toolchains", "the directories of the caller's PATH, read-only", p.From, func(sandbox.Capabilities) sandbox.Clause {
			return sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "those that the caller or root owns, and no other user may write"}
		})
	}
}
