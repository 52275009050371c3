// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"encoding/json"
	"errors"
	"fmt"
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
	Hold(set.Entries, Beside{
		Look:    h.look,
		Content: func(e *Entry) (io.ReadCloser, error) { return os.Open(path.Join(dir, contentDir, e.SHA256)) },
		Old:     func(at string) (io.ReadCloser, error) { return h.open(at) },
	})
	NamedByGit(h.root, set.Entries).Hold(set.Entries)
	for i := range set.Entries {
		if len(set.Entries[i].Held) > 0 {
			set.Counts.Held++
		}
	}
}

// Hold says in entries, which are sorted, why each is held back.
func Hold(entries []Entry, b Beside) {
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
	}
}

// why gives the reasons, none for what is not held.
func (k *holding) why(e *Entry) []string {
	why := heldName(e.Path, e.Type == Dir && (e.Base == nil || e.Base.Type == Dir))
	if strings.ContainsAny(e.Path, `\:`) {
		why = append(why, `some systems take a \ or : in its name for another place`)
	}
	if e.Op == Remove {
		return why
	}
	if dir, ok := hostpath.CompletesRepository(e.Path, k.exists); ok && (e.Op == Add || e.Type == Link) {
		why = append(why, "with it, git would take "+Shown(dir)+" for a repository and run its config")
	}
	switch {
	case e.Type == Link:
		why = append(why, k.link(e)...)
	case e.Type == Dir && e.Op == Mode && e.Base != nil:
		why = append(why, fmt.Sprintf("its mode changes from %04o to %04o", e.Base.Mode, e.Mode))
		if e.Mode&^e.Base.Mode&0o022 != 0 {
			why = append(why, "other users could write to it")
		}
	case e.Exec() && (e.Base == nil || e.Base.Type != File || e.Base.Mode&0o111 == 0):
		why = append(why, "it can be run: its exec bit is new")
	}
	if hostpath.Folded(path.Base(e.Path)) == "package.json" && e.Type != Dir && e.Op != Mode && (e.Type == Link || k.packageActs(e)) {
		why = append(why, "a package manager runs or obeys what changed in it")
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
	if isAbove(path.Base(e.Path)) {
		why = append(why, "it is a link, and in a directory of that name certain names are held back")
	}
	if strings.HasPrefix(e.Link, "/") {
		return append(why, "it is a link to "+Shown(e.Link)+", from the top of the host")
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
	if named := heldName(at, k.isDir(at)); at != "." && len(named) > 0 {
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

// isDir says that a path is a directory, once the set is applied.
func (k *holding) isDir(at string) bool {
	if e, ok := k.entries[at]; ok {
		return e.Op != Remove && e.Type == Dir
	}
	base, err := k.Look(at)
	return err == nil && base != nil && base.Type == Dir
}

// harmlessKeys are what no package manager acts by in a package.json.
var harmlessKeys = []string{"version", "description", "keywords", "author", "license", "homepage", "bugs", "repository", "contributors", "funding", "private"}

// packageActs says whether a package.json differs from the host's in more than harmless
// keys, or may.
func (k *holding) packageActs(e *Entry) bool {
	f, err := k.Content(e)
	if err != nil {
		return true
	}
	is, err := readPackage(f)
	if err != nil {
		return true
	}
	was := map[string]any{}
	if e.Base != nil && e.Base.Type == File {
		old, err := k.Old(e.Path)
		if err != nil {
			return true
		}
		if was, err = readPackage(old); err != nil {
			return true
		}
	}
	return !reflect.DeepEqual(is, was)
}

// readPackage reads what is not harmless of a package.json.
func readPackage(f io.ReadCloser) (map[string]any, error) {
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPackage+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxPackage {
		return nil, errors.New("it is too large")
	}
	all := map[string]any{}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	for _, name := range harmlessKeys {
		delete(all, name)
	}
	return all, nil
}
