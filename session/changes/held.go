// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"reflect"
	"strings"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// maxPackage bounds a package.json that is read, in bytes.
const maxPackage = 1 << 20

// holding says which entries of a set are held back. It is advice: whatever is applied
// is code in the end.
type holding struct {
	Beside
	entries map[string]*Entry
}

// Beside is what entries change: what Hold compares them with.
type Beside struct {
	Look    func(path string) (*Base, error)         // what it has at a path; nil is nothing
	Content func(e *Entry) (io.ReadCloser, error)    // of a file that is added or changed
	Old     func(path string) (io.ReadCloser, error) // of a file that it has
}

// hold marks what is held back in a set whose contents lie in dir.
func hold(set *Set, h *host, dir string) {
	set.Counts.Held = Hold(set.Entries, Beside{
		Look:    h.look,
		Content: func(e *Entry) (io.ReadCloser, error) { return os.Open(path.Join(dir, contentDir, e.SHA256)) },
		Old:     func(at string) (io.ReadCloser, error) { return h.open(at) },
	})
}

// Hold says in entries, which are sorted, why each is held back, and how many are.
func Hold(entries []Entry, b Beside) (held int) {
	k := &holding{Beside: b, entries: map[string]*Entry{}}
	for i := range entries {
		k.entries[entries[i].Path] = &entries[i]
	}
	for i := range entries {
		e := &entries[i]
		e.Held = k.why(e)
		if above := k.entries[path.Dir(e.Path)]; e.Held == nil && above != nil && above.Held != nil && above.Type == Dir && above.Op != Mode && above.Op != Remove {
			e.Held = []string{"its directory is held back"}
		}
		if len(e.Held) > 0 {
			held++
		}
	}
	return held
}

// why gives the reasons, none for what is not held.
func (k *holding) why(e *Entry) []string {
	why := heldName(e.Path)
	if e.Op == Remove {
		return why
	}
	if dir, ok := hostpath.CompletesRepository(e.Path, k.exists); ok && (e.Op == Add || e.Type == Link) {
		why = append(why, "with it, git would take "+Shown(dir)+" for a repository and run its config")
	}
	switch {
	case e.Type == Link:
		why = append(why, k.link(e)...)
	case e.Exec() && (e.Base == nil || e.Base.Type != File || e.Base.Mode&0o111 == 0):
		why = append(why, "it can be run: its exec bit is new")
	case e.Type == Dir && e.Op == Mode && e.Mode&^e.Base.Mode&0o022 != 0:
		why = append(why, "other users could write to it")
	}
	if hostpath.Folded(path.Base(e.Path)) == "package.json" && e.Type == File && e.Op != Mode && k.scripts(e) {
		why = append(why, "its scripts changed: npm runs them")
	}
	return why
}

// exists says whether a path is there once the set is applied.
func (k *holding) exists(at string) bool {
	if e, ok := k.entries[at]; ok {
		return e.Op != Remove
	}
	base, err := k.Look(at)
	return base != nil || err != nil
}

// link says what is wrong with where a link leads.
func (k *holding) link(e *Entry) (why []string) {
	if strings.HasPrefix(e.Link, "/") {
		return []string{"it is a link to " + Shown(e.Link) + ", from the top of the host"}
	}
	if strings.ContainsAny(e.Link, `\:`) {
		why = append(why, `some systems take a \ or : in a link for another place`)
	}
	at := path.Dir(e.Path)
	for part := range strings.SplitSeq(e.Link, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return append(why, "it is a link out of the workspace: "+Shown(e.Link))
			}
			at = path.Dir(at)
			continue
		}
		at = path.Join(at, part)
		if k.isLink(at) {
			return append(why, "it is a link through another one, "+Shown(at))
		}
	}
	if named := heldName(at); at != "." && len(named) > 0 {
		why = append(why, "it leads to what is held back: "+named[0])
	}
	return why
}

// isLink says that a path is a link, once the set is applied or until then.
func (k *holding) isLink(at string) bool {
	if e, ok := k.entries[at]; ok && e.Type == Link {
		return true
	}
	base, err := k.Look(at)
	return err != nil || base != nil && base.Type == Link
}

// scripts says whether a package.json has other scripts than the host's, or may have.
func (k *holding) scripts(e *Entry) bool {
	f, err := k.Content(e)
	if err != nil {
		return true
	}
	is, err := readScripts(f)
	if err != nil {
		return true
	}
	if e.Base == nil || e.Base.Type != File {
		return is != nil
	}
	old, err := k.Old(e.Path)
	if err != nil {
		return true
	}
	was, err := readScripts(old)
	return err != nil || !reflect.DeepEqual(is, was)
}

// readScripts reads the parts of a package.json that npm and its like run.
func readScripts(f io.ReadCloser) (map[string]any, error) {
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPackage+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxPackage {
		return nil, errors.New("it is too large")
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	var run map[string]any
	for name, value := range all {
		switch strings.ToLower(name) {
		case "scripts", "bin", "gypfile", "husky", "lint-staged", "simple-git-hooks", "pre-commit", "packagemanager", "bundleddependencies", "bundledependencies", "pnpm", "config":
			if run == nil {
				run = map[string]any{}
			}
			run[name] = value
		}
	}
	return run, nil
}
