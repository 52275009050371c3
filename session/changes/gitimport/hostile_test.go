// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gitimport

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// put keeps an object as git does it, under its own id.
func (m memory) put(kind Kind, content string) ID {
	id := identify(kind, []byte(content))
	m[id] = packed(fmt.Sprintf("%s %d\x00%s", kind, len(content), content))
	return id
}

func packed(s string) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	z.Write([]byte(s))
	z.Close()
	return b.Bytes()
}

func entry(mode, name string, id ID) string { return mode + " " + name + "\x00" + string(id[:]) }

const people = "author A <a@x> 1700000000 +0000\ncommitter A <a@x> 1700000000 +0000\n"

func (m memory) commit(tree ID, more string) ID {
	return m.put(Commit, "tree "+tree.String()+"\n"+more+people+"\nmessage\n")
}

// empty is a repository with one commit of the host's, and says which files it has.
func empty(t testing.TB) (dir string, r *Repository, was string) {
	t.Helper()
	dir = t.TempDir()
	root, err := os.Open(dir)
	if err == nil {
		err = errors.Join(os.MkdirAll(dir+"/.git/objects/info", 0o755), os.MkdirAll(dir+"/.git/refs/heads", 0o755), os.WriteFile(dir+"/.git/HEAD", []byte("ref: refs/heads/main\n"), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if r, err = Open(root, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return dir, r, files(t, dir)
}

// files are the names of all that is in a directory.
func files(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(p string, i os.FileInfo, err error) error {
		if err == nil {
			fmt.Fprintln(&b, strings.TrimPrefix(p, dir), i.Mode(), i.Size()*int64(1-min(1, int(i.Mode()>>31))))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// importAll takes over what a commit leads to, as Branch does it.
func importAll(t testing.TB, r *Repository, m memory, tip ID) error {
	p, err := r.Plan(t.Context(), m, tip)
	if err != nil {
		return err
	}
	if _, err := p.Held(); err != nil {
		return err
	}
	return p.Write("agent")
}

// What git fsck would have something against does not come over.
func TestHostileObjects(t *testing.T) {
	blob := func(m memory) ID { return m.put(Blob, "b\n") }
	tree := func(m memory, e ...string) ID { return m.put(Tree, strings.Join(e, "")) }
	good := func(m memory) ID { return tree(m, entry("100644", "f", blob(m))) }
	named := func(mode, name string) func(memory) ID {
		return func(m memory) ID { return m.commit(tree(m, entry(mode, name, blob(m))), "") }
	}
	head := func(text string) func(memory) ID {
		return func(m memory) ID {
			return m.put(Commit, strings.NewReplacer("TREE", good(m).String(), "PEOPLE", people).Replace(text))
		}
	}
	file := func(name, text string) func(memory) ID {
		return func(m memory) ID { return m.commit(tree(m, entry("100644", name, m.put(Blob, text))), "") }
	}
	for name, make := range map[string]func(m memory) ID{
		"an id that is not there": func(memory) ID { return ID{1} },
		"a missing tree":          func(m memory) ID { return m.commit(ID{2}, "") },
		"a missing parent":        func(m memory) ID { return m.commit(good(m), "parent "+ID{3}.String()+"\n") },
		"a missing blob":          func(m memory) ID { return m.commit(tree(m, entry("100644", "f", ID{4})), "") },
		"a blob as a tip":         blob,
		"a tree as a tip":         good,
		"a blob as a tree":        func(m memory) ID { return m.commit(blob(m), "") },
		"a tree as a blob":        func(m memory) ID { return m.commit(tree(m, entry("100644", "f", good(m))), "") },
		"a blob as a directory":   func(m memory) ID { return m.commit(tree(m, entry("40000", "f", blob(m))), "") },
		"a commit as a tree":      func(m memory) ID { return m.commit(m.commit(good(m), ""), "") },
		"an object of another id": func(m memory) ID { m[ID{5}] = m[m.commit(good(m), "")]; return ID{5} },
		"a blob of another id":    func(m memory) ID { m[ID{6}] = m[blob(m)]; return m.commit(tree(m, entry("100644", "f", ID{6})), "") },
		"no zlib":                 func(m memory) ID { m[ID{7}] = []byte("x"); return ID{7} },
		"cut short":               func(m memory) ID { c := m.commit(good(m), ""); m[c] = m[c][:len(m[c])/2]; return c },
		"longer than it says":     func(m memory) ID { m[ID{8}] = packed("commit 1\x00xxxx"); return ID{8} },
		"shorter than it says":    func(m memory) ID { m[ID{8}] = packed("commit 100\x00x"); return ID{8} },
		"a size of a terabyte":    func(m memory) ID { m[ID{8}] = packed("commit 1099511627776\x00x"); return ID{8} },
		"a blob of a terabyte": func(m memory) ID {
			m[ID{8}] = packed("blob 1099511627776\x00x")
			return m.commit(tree(m, entry("100644", "f", ID{8})), "")
		},
		"a size below zero":            func(m memory) ID { m[ID{8}] = packed("commit -1\x00x"); return ID{8} },
		"a size with a zero before it": func(m memory) ID { m[ID{8}] = packed("commit 01\x00x"); return ID{8} },
		"a header without an end":      func(m memory) ID { m[ID{8}] = packed(strings.Repeat("c", 100)); return ID{8} },
		"a kind that is none":          func(m memory) ID { m[ID{8}] = packed("tag 1\x00x"); return ID{8} },

		"the name .git":            named("100644", ".git"),
		"the name .GIT":            named("40000", ".GIT"),
		"the name git~1":           named("100644", "git~1"),
		"the name .git with a ZWJ": named("100644", ".g\u200dit"),
		"the name .git.":           named("100644", ".git. "),
		"the name .git in NTFS":    named("100644", ".git::$INDEX_ALLOCATION"),
		`the name a\.git`:          named("100644", `a\.git`),
		`the name ..\x`:            named("100644", `..\x`),
		"the name ..":              named("40000", ".."),
		"the name .":               named("40000", "."),
		"no name":                  named("100644", ""),
		"a name with a slash":      named("100644", "a/b"),
		"a long name":              named("100644", strings.Repeat("n", 300)),
		"a mode with a zero":       named("0100644", "f"),
		"a mode for groups":        named("100664", "f"),
		"a set-user-id mode":       named("104755", "f"),
		"a device":                 named("020000", "f"),
		"no mode":                  named("", "f"),
		"a .gitmodules link":       named("120000", ".gitmodules"),
		"a GITMOD~1 link":          named("120000", "GITMOD~1"),
		"a .gitattributes link":    named("120000", ".gitattributes"),
		"a tree that is cut":       func(m memory) ID { return m.commit(m.put(Tree, "100644 f\x00abc"), "") },
		"a tree without order": func(m memory) ID {
			return m.commit(tree(m, entry("100644", "b", blob(m)), entry("100644", "a", blob(m))), "")
		},
		"a name twice": func(m memory) ID {
			return m.commit(tree(m, entry("100644", "a", blob(m)), entry("100644", "a", blob(m))), "")
		},
		"a name as file and directory": func(m memory) ID {
			return m.commit(tree(m, entry("100644", "a", blob(m)), entry("100644", "a.b", blob(m)), entry("40000", "a", good(m))), "")
		},
		"an id of zeros": func(m memory) ID { return m.commit(tree(m, entry("160000", "a", ID{})), "") },
		"a deep tree": func(m memory) ID {
			id := good(m)
			for range 300 {
				id = tree(m, entry("40000", "d", id))
			}
			return m.commit(id, "")
		},

		"a submodule that is an option":   file(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = -u./evil\n"),
		"a submodule that is above":       file(".gitmodules", "[submodule \"../../x\"]\n\tpath = x\n\turl = https://x\n"),
		"a submodule that runs a thing":   file(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = https://x\n\tupdate = !evil\n"),
		"a submodule in .git":             file(".gitmodules", "[submodule \"x\"]\n\tpath = .git/hooks\n\turl = https://x\n"),
		"a submodule by ext":              file(".GITMODULES", "[submodule \"x\"]\n\tpath = x\n\turl = ext::sh -c x\n"),
		"a submodule with a line feed":    file(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = \"https://x\\n\"\n"),
		"attributes with a long line":     file(".gitattributes", strings.Repeat("x", 3000)),
		"no tree":                         head("PEOPLE\nm\n"),
		"two trees":                       head("tree TREE\nPEOPLEtree TREE\n\nm\n"),
		"a parent after the people":       head("tree TREE\nPEOPLEparent TREE\n\nm\n"),
		"no people":                       head("tree TREE\n\nm\n"),
		"no committer":                    head("tree TREE\nauthor A <a@x> 1 +0000\n\nm\n"),
		"an author without an address":    head("tree TREE\nauthor A 1 +0000\ncommitter A <a@x> 1 +0000\n\nm\n"),
		"an author with a second bracket": head("tree TREE\nauthor A <a<b@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nm\n"),
		"a date with a zero":              head("tree TREE\nauthor A <a@x> 01 +0000\ncommitter A <a@x> 1 +0000\n\nm\n"),
		"a date without an end":           head("tree TREE\nauthor A <a@x> 99999999999999999999 +0000\ncommitter A <a@x> 1 +0000\n\nm\n"),
		"a zone that is none":             head("tree TREE\nauthor A <a@x> 1 UTC\ncommitter A <a@x> 1 +0000\n\nm\n"),
		"a NUL in the message":            head("tree TREE\nPEOPLE\nm\x00x\n"),
		"a NUL in the head":               head("tree TREE\nPEOPLEx \x00\n\nm\n"),
		"a head without an end":           head("tree TREE\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000"),
		"an id in capitals":               func(m memory) ID { return m.put(Commit, "tree "+strings.ToUpper(good(m).String())+"\n"+people+"\nm\n") },
		"too many parents": func(m memory) ID {
			return m.commit(good(m), strings.Repeat("parent "+m.commit(good(m), "").String()+"\n", 100))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, r, was := empty(t)
			m := memory{}
			err := importAll(t, r, m, make(m))
			if e := (*sandbox.Error)(nil); !errors.As(err, &e) || e.Kind != sandbox.ErrInvalid {
				t.Errorf("%v", err)
			}
			if is := files(t, dir); is != was {
				t.Errorf("it has now\n%s", is)
			}
		})
	}
}

// What is within the rules comes over.
func TestPlainObjects(t *testing.T) {
	dir, r, _ := empty(t)
	m := memory{}
	modules := m.put(Blob, "[submodule \"x\"]\n\tpath = vendor/x\n\turl = https://example.com/x.git\n\tbranch = main\n")
	sub := m.put(Tree, entry("100755", "run", m.put(Blob, "#!/bin/sh\n"))+entry("120000", "to", m.put(Blob, "run")))
	tree := m.put(Tree, entry("100644", ".gitmodules", modules)+entry("100644", "a.b", m.put(Blob, ""))+entry("40000", "a", sub)+entry("160000", "m", ID{1}))
	first := m.commit(tree, "")
	second := m.put(Commit, "tree "+tree.String()+"\nparent "+first.String()+"\n"+people+"gpgsig -----BEGIN\n x\n \n -----END\nencoding ISO-8859-1\n\nm\n")
	m.put(Blob, "not reached")
	if err := importAll(t, r, m, second); err != nil {
		t.Fatal(err)
	}
	fsck(t, dir)
	if got := git(t, dir, "rev-list", "--count", "agent"); got != "2" {
		t.Errorf("%s commits", got)
	}
	if n := strings.Count(git(t, dir, "cat-file", "--batch-all-objects", "--batch-check"), "\n") + 1; n != len(m)-1 {
		t.Errorf("%d objects came over, of %d", n, len(m)-1)
	}
}

// What the host has is not named as something else either: git would not find its way.
func TestHostsObjectsNamedWrongly(t *testing.T) {
	for name, make := range map[string]func(m memory, file, dir, tip ID) ID{
		"a file as a directory": func(m memory, file, _, _ ID) ID { return m.commit(m.put(Tree, entry("40000", "d", file)), "") },
		"a directory as a file": func(m memory, _, dir, _ ID) ID { return m.commit(m.put(Tree, entry("100644", "d", dir)), "") },
		"a commit as a tree":    func(m memory, _, _, tip ID) ID { return m.commit(tip, "") },
		"a tree as a parent":    func(m memory, _, dir, _ ID) ID { return m.commit(dir, "parent "+dir.String()+"\n") },
	} {
		dir, r, _ := empty(t)
		m := memory{}
		file := m.put(Blob, "b")
		tree := m.put(Tree, entry("100644", "f", file))
		tip := m.commit(tree, "")
		if err := importAll(t, r, m, tip); err != nil {
			t.Fatal(err)
		}
		was := files(t, dir)
		if _, err := r.Plan(t.Context(), m, make(m, file, tree, tip)); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if files(t, dir) != was {
			t.Errorf("%s: something was written", name)
		}
	}
}

// A content that is another one by the time that it is written does not come over.
func TestContentChangesMeanwhile(t *testing.T) {
	dir, r, _ := empty(t)
	m := memory{}
	file := m.put(Blob, "good")
	p, err := r.Plan(t.Context(), m, m.commit(m.put(Tree, entry("100644", "f", file)), ""))
	if err != nil {
		t.Fatal(err)
	}
	m[file] = packed("blob 4\x00evil")
	if err := p.Write("agent"); err == nil || !strings.Contains(err.Error(), "another content") {
		t.Errorf("%v", err)
	}
	if got := git(t, dir, "cat-file", "--batch-all-objects", "--batch-check"); got != "" {
		t.Errorf("there is %s", got)
	}
}

func TestBounds(t *testing.T) {
	for name, b := range map[string]bounds{"objects": {2, MaxBytes, maxHeld}, "bytes": {MaxObjects, 100, maxHeld}, "bytes held": {MaxObjects, MaxBytes, 100}} {
		dir, r, was := empty(t)
		m := memory{}
		tip := m.commit(m.put(Tree, entry("100644", "f", m.put(Blob, strings.Repeat("x", 200)))), "")
		p := r.plan(t.Context(), m)
		p.max = b
		if err := p.reach(tip); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %v", name, err)
		}
		if files(t, dir) != was {
			t.Errorf("%s: something was written", name)
		}
	}
}

// broken is a repository of which single bytes were changed: under the id of what it was,
// or under its own.
func broken(seed uint64) (m memory, tip ID) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	m = memory{}
	change := func(s string) string {
		b := []byte(s)
		if len(b) == 0 {
			return "x"
		}
		switch at := rnd.IntN(len(b)); rnd.IntN(4) {
		case 0:
			b[at] ^= 1 << rnd.IntN(8)
		case 1:
			b = append(b[:at:at], b[at+1:]...)
		case 2:
			b = append(b[:at:at], append([]byte{byte(rnd.IntN(256))}, b[at:]...)...)
		case 3:
			b = b[:at]
		}
		return string(b)
	}
	at, n := rnd.IntN(4), 0
	put := func(kind Kind, s string) ID {
		if n++; n-1 != at {
			return m.put(kind, s)
		}
		if rnd.IntN(2) == 0 { // under its own id: it is malformed, or another one
			return m.put(kind, change(s))
		}
		id := m.put(kind, s)
		m[id] = []byte(change(string(m[id])))
		return id
	}
	sub := put(Tree, entry("100644", "x", m.put(Blob, "x")))
	tree := put(Tree, entry("100644", "f", put(Blob, "b"))+entry("40000", "g", sub))
	return m, put(Commit, "tree "+tree.String()+"\n"+people+"\nm\n")
}

// TestHostileStreams: what comes over of 500 that were made is whole, and what does not
// leaves nothing.
func TestHostileStreams(t *testing.T) {
	dir, r, was := empty(t)
	refused := 0
	for seed := range uint64(500) {
		m, tip := broken(seed)
		p, err := r.Plan(t.Context(), m, tip)
		if err == nil {
			_, err = p.Held()
		}
		if err != nil {
			refused++
			if is := files(t, dir); is != was {
				t.Fatalf("seed %d: %v, and it has now\n%s", seed, err, is)
			}
			continue
		}
		if seed%8 != 0 { // each waits for the disk
			continue
		}
		if err := p.Write(fmt.Sprintf("b%d", seed)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		was = files(t, dir)
	}
	if refused < 150 {
		t.Errorf("only %d were refused", refused)
	}
	fsck(t, dir)
}

func FuzzObjects(f *testing.F) {
	f.Add("commit", "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"+people+"\nm\n")
	f.Add("tree", entry("100644", "f", ID{1}))
	f.Add("modules", "[submodule \"x\"]\n\tpath = x\n\turl = https://x\n")
	f.Add("loose", string(packed("blob 1\x00x")))
	f.Add("delta", "\x01\x02\x90\x01\x01y")
	f.Fuzz(func(t *testing.T, what, text string) {
		switch what {
		case "commit":
			if c, err := parseCommit([]byte(text)); err == nil && !strings.HasPrefix(text, "tree "+c.tree.String()+"\n") {
				t.Error("another tree")
			}
		case "tree":
			if all, err := parseTree([]byte(text), false); err == nil && string(writeTree(all)) != text {
				t.Error("it is not what is written")
			}
		case "modules":
			_ = checkModules(text)
		case "delta":
			if b, err := applyDelta([]byte("x"), []byte(text), 1000); err == nil && len(b) > 1000 {
				t.Error("larger than it may be")
			}
		case "loose":
			m := memory{{}: []byte(text)}
			r, _ := m.Open(ID{})
			if l, err := openLoose(r); err == nil {
				if b, err := l.whole(1000); err == nil && len(b) > 1000 {
					t.Error("larger than it may be")
				}
				l.Close()
			}
		}
	})
}
