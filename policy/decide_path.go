// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path"
	"slices"
	"strings"
)

// Kinds of calls that are about one file or directory of a persistent sandbox
// (Call.Path), as a client asks for them that moves or changes files without a
// tool.
const (
	ReadFile      Kind = "read_file"
	WriteFile     Kind = "write_file"
	RemoveFile    Kind = "remove_file"
	MoveFile      Kind = "move_file" // decided for either path
	MakeDirectory Kind = "make_directory"
)

// touchesFile says whether a call of this kind is about a file.
func (k Kind) touchesFile() bool {
	return slices.Contains([]Kind{ReadFile, WriteFile, RemoveFile, MoveFile, MakeDirectory}, k)
}

// checkPath refuses a path of a sandbox that cannot be meant.
func (d *decision) checkPath() *refusal {
	p := d.call.Path
	if path.Clean(p) != p || !path.IsAbs(p) || strings.ContainsRune(p, 0) || len(p) > 4096 {
		return cannotMean("write an absolute path without ..", "path %s cannot be meant", quote(p))
	}
	return nil
}

// path judges the path of a call about a file: files.deny holds for it and for each
// directory above it, seen from Cwd, and where a layer has an entry for the tool that
// does the same, its arguments and rules hold for the path, too. They compare text;
// links lead where the sandbox's own files say.
func (d *decision) path() *refusal {
	c := d.call
	return d.each(func(f *File) *refusal {
		for _, v := range f.Files.Deny {
			g, err := ParseGlob(v.V)
			if err != nil { // Parse found it well-formed
				return refuseInvalid("files.deny", err)
			}
			for at := c.Path; at != "/"; at = path.Dir(at) {
				if g.Match(c.Cwd, at) {
					return refuse(f.rule(v.At), "choose another path", "%s is denied by files.deny", quote(c.Path))
				}
			}
		}
		if c.Tool == nil {
			return nil
		}
		r := f.Tools.rule(c.Tool.Name, false)
		if r == nil {
			return nil
		}
		e := entry{r, f}
		if e.schema != nil {
			if faults := e.schema.Check(c.Tool.Args); len(faults) > 0 {
				_, text := shownFaults(faults, secretPaths(c.Tool, []entry{e})) // they are not the caller's
				return refuse(f.rule(e.Params.At), "mend them all, or call the tool "+c.Tool.Name, "%s: %s", c.Tool.Name, text)
			}
		}
		return refuseBroken(c.Tool.Name, d.conditions(c.Tool, e, secretPaths(c.Tool, []entry{e})))
	})
}
