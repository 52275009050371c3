// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/template"
)

// bed is where COPY is tried: a store, and a directory of a build.
type bed struct {
	*testing.T
	store *image.Store
	dir   string
}

func newBed(t *testing.T) *bed {
	store, err := image.OpenStore(filepath.Join(t.TempDir(), "images"))
	if errors.Is(err, sandbox.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t, store, t.TempDir()}
	b.files("a=A", "b.txt=B", "c.txt=C", "sub/deep/x=X", "sub/y=Y", "sub/lib/z=Z", "hidden/keep/k=K", "hidden/secret=S", ".wh.a=W", "to-a>a", "to-sub>sub", "abs>/sub/y",
		"to-hidden>hidden", "out>../../etc/passwd", "round>round", "gone>missing", "line\nfeed\x1b=L")
	return b
}

// files makes NAME=TEXT and links NAME>TARGET.
func (b *bed) files(list ...string) {
	b.Helper()
	for _, f := range list {
		name, text, isFile := strings.Cut(f, "=")
		link, to, _ := strings.Cut(f, ">")
		at := filepath.Join(b.dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if isFile {
			err = errors.Join(err, os.WriteFile(at, []byte(text), 0o644))
		} else {
			err = errors.Join(err, os.Symlink(to, filepath.Join(b.dir, link)))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// copy carries out the COPY and WORKDIR of a Dockerfile that begins with scratch, and lists what
// they made, one a line.
func (b *bed) copy(dockerfile, ignore string) (string, error) {
	b.Helper()
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	hides, err := template.ParseIgnore(".dockerignore", []byte(ignore))
	if err != nil {
		b.Fatal(err)
	}
	def, err := template.ParseDockerfile("Dockerfile", []byte("FROM scratch\n"+dockerfile), template.Options{})
	if err != nil {
		return "", err
	}
	tree, err := b.store.Build(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer tree.Close()
	w := &work{Builder: &Builder{Images: b.store}, Request: &Request{Dir: root, Ignore: hides}, copies: map[*template.Copy]string{}}
	at := &point{tree: tree}
	for i := range def.Stages[0].Steps {
		s := &def.Stages[0].Steps[i]
		if s.Copy == nil {
			err = w.makeDir(b.Context(), tree, s)
		} else if w.copies[s.Copy], err = w.sources(b.Context(), s.Copy); err == nil {
			err = w.copy(b.Context(), at, s)
		}
		if err != nil {
			return "", err
		}
	}
	return b.list(tree), nil
}

// list is what a tree holds, but for what every image has.
func (b *bed) list(tree *image.Builder) string {
	var out []string
	var walk func(dir string, n *fstree.Node)
	walk = func(dir string, n *fstree.Node) {
		for _, name := range n.Names() {
			c, at := n.Children[name], path.Join(dir, name)
			if dir == "" && slices.Contains(strings.Fields("dev etc home proc root sys tmp workspace"), name) {
				continue
			}
			switch c.Kind {
			case fstree.File:
				text, err := tree.ReadFile(at, 100)
				if err != nil {
					b.Fatal(err)
				}
				out = append(out, fmt.Sprintf("%s=%s", at, text))
			case fstree.Link:
				out = append(out, at+">"+c.Target)
			case fstree.Dir:
				if len(c.Children) == 0 {
					out = append(out, at+"/")
				}
				walk(at, c)
			}
		}
	}
	walk("", tree.Tree())
	return strings.Join(out, " ")
}

// COPY does as docker's reference says.
func TestCopy(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct{ name, file, ignore, want string }{
		{"a file to a name", "COPY a /n", "", "n=A"},
		{"into a directory that is made", "COPY a /d/", "", "d/a=A"},
		{"into one that is there", "WORKDIR /d\nCOPY a /d", "", "d/a=A"},
		{"relative to WORKDIR", "WORKDIR /d/e\nCOPY a n\nCOPY a ./", "", "d/e/a=A d/e/n=A"},
		{"what is in a directory", "COPY sub /d", "", "d/deep/x=X d/lib/z=Z d/y=Y"},
		{"of two, merged", "COPY sub hidden /d/", "", "d/deep/x=X d/keep/k=K d/lib/z=Z d/secret=S d/y=Y"},
		{"a pattern", "COPY *.txt /d/", "", "d/b.txt=B d/c.txt=C"},
		{"a pattern on the way", "COPY s*/y /d/", "", "d/y=Y"},
		{"a slash first", "COPY /a /n", "", "n=A"},
		{"a file again", "COPY a /n\nCOPY b.txt /n", "", "n=B"},
		{"no whiteout", "COPY a /a\nCOPY .wh.a /", "", ".wh.a=W a=A"},
		{"any character", "COPY line* /n", "", "n=L"},
		{"a heredoc", "COPY <<f /d/\nhi\nf\n", "", "d/f=hi\n"},

		{"a link that is named is followed", "COPY to-a /n", "", "n=A"},
		{"and keeps its own name", "COPY to-a /d/", "", "d/to-a=A"},
		{"a link to a directory is what is in it", "COPY to-sub /d/", "", "d/deep/x=X d/lib/z=Z d/y=Y"},
		{"a link on the way", "COPY to-sub/y /n", "", "n=Y"},
		{"a pattern behind a link", "COPY to-sub/y* /d/", "", "d/y=Y"},
		{"an absolute one begins at the directory", "COPY abs /n", "", "n=Y"},

		{"hidden but for what ! shows", "COPY . /", "*\n!hidden/keep", "hidden/keep/k=K"},
		{"in a directory that is named", "COPY hidden /d", "hidden\n!hidden/keep", "d/keep/k=K"},
		{"hidden", "COPY hidden /d", "hidden/secret", "d/keep/k=K"},
	} {
		if got, err := b.copy(c.file, c.ignore); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

// What a COPY cannot do is said, and nothing of the tree is lost.
func TestCopyRefused(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct{ name, file, ignore, want string }{
		{"nothing there", "COPY none /", "", "not there"},
		{"a pattern of nothing", "COPY *.none /", "", "not there"},
		{"a link that leads out", "COPY out /n", "", "not there"},
		{"to nothing", "COPY gone /n", "", "not there"},
		{"in a circle", "COPY round /n", "", "too many links"},
		{"hidden", "COPY hidden/secret /n", "hidden/secret", "not there"},
		{"hidden, behind a link", "COPY to-hidden/secret /n", "hidden/secret", "not there"},
		{"hidden, and the link to it named", "COPY to-hidden /n", "hidden", "not there"},
		{"a directory on a file", "COPY a /n\nCOPY sub /n", "", "/n: it is a file"},
		{"a file on a directory", "COPY sub /d/a\nCOPY a /d/", "", "/d/a: it is a directory"},
		{"a directory on a link", "COPY . /\nCOPY sub /to-sub/y", "", "it is a file"},
		{"a directory in one, on a link", "COPY . /\nCOPY hidden /r/to-a\nCOPY . /r/", "", "it is a directory"},
		{"WORKDIR through a file", "COPY a /n\nWORKDIR /n/d", "", "/n: it is a file"},
		{"WORKDIR through a link to nothing", "COPY . /\nWORKDIR /gone/d", "", "/gone: it is a link"},
	} {
		got, err := b.copy(c.file, c.ignore)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

// Modes and owners are those of the flags, else root's and the file's.
func TestCopyModes(t *testing.T) {
	b := newBed(t)
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for flags, want := range map[string][5]int{
		"":                         {0o755, 0o644, 0, 0, 0},
		"--chmod=600":              {0o600, 0o600, 0, 0, 0},
		"--chmod=000":              {0, 0, 0, 0, 0},
		"--chmod=4755":             {0o755, 0o755, 0, 0, 0}, // set-id bits are left out
		"--chown=7:8":              {0o755, 0o644, 7, 8, 0},
		"--chown=55":               {0o755, 0o644, 55, 55, 0},
		"--chown=user --chmod=640": {0o640, 0o640, 1000, 1000, 0},
	} {
		def, err := template.ParseDockerfile("Dockerfile", []byte("FROM scratch\nCOPY "+flags+" sub /d/\n"), template.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tree, err := b.store.Build(nil)
		if err != nil {
			t.Fatal(err)
		}
		w := &work{Builder: &Builder{Images: b.store}, Request: &Request{Dir: root}, copies: map[*template.Copy]string{}}
		s := &def.Stages[0].Steps[0]
		if w.copies[s.Copy], err = w.sources(t.Context(), s.Copy); err == nil {
			err = w.copy(t.Context(), &point{tree: tree}, s)
		}
		if err != nil {
			t.Fatal(err)
		}
		top, _ := tree.Tree().Lookup("/d")
		dir, _ := tree.Tree().Lookup("/d/deep")
		file, _ := tree.Tree().Lookup("/d/y")
		if got := [5]int{int(dir.Mode), int(file.Mode), int(file.UID), int(file.GID), 0}; got != want {
			t.Errorf("%q: %v, want %v", flags, got, want)
		}
		if top.Mode != 0o755 {
			t.Errorf("%q: the target has mode %o", flags, top.Mode)
		}
		tree.Close()
	}
}

// What changes between the look at files and their copy is no result under their digest.
func TestCopyOfWhatChanges(t *testing.T) {
	b := newBed(t)
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	def, err := template.ParseDockerfile("Dockerfile", []byte("FROM scratch\nCOPY . /\n"), template.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &work{Builder: &Builder{Images: b.store}, Request: &Request{Dir: root}, copies: map[*template.Copy]string{}}
	s := &def.Stages[0].Steps[0]
	if w.copies[s.Copy], err = w.sources(context.Background(), s.Copy); err != nil {
		t.Fatal(err)
	}
	tree, err := b.store.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if err := os.WriteFile(filepath.Join(b.dir, "a"), []byte("Z"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := w.copy(t.Context(), &point{tree: tree}, s); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("a file that was changed is copied: %v", err)
	}
}
