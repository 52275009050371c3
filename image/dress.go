// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// An image's tree is dressed before it is kept: it gets the directories on which
// every level mounts something, and names that are the same in every sandbox.
// All of it happens in memory, on nodes. A name that is a link in the image is
// refused or replaced, never followed to somewhere else.

// dresser dresses one tree.
type dresser struct {
	root  *fstree.Node
	read  func(n *fstree.Node) ([]byte, error) // contents of a file
	write func(text string) (*fstree.Node, error)
	out   *Stored
}

// dress completes the tree and fills in who runs on it.
func (d *dresser) dress(c Config) error {
	for _, name := range []string{"proc", "sys", "dev", "etc", "tmp", "home", "root"} {
		if err := d.mustBeDir(name); err != nil {
			return err
		}
	}
	// What is in them is the level's; what an image has there would be hidden.
	for _, name := range []string{"proc", "sys", "dev"} {
		d.root.Children[name].Children = map[string]*fstree.Node{}
	}
	d.root.Children["dev"].Children["shm"] = sticky()
	d.root.Children["tmp"].Mode = 0o1777
	if err := d.who(c.User); err != nil {
		return err
	}
	home, ok := d.child(d.root.Children["home"], "user")
	if !ok {
		return redirects("/home/user")
	}
	if len(home.Children) > 0 && !d.out.Built {
		d.out.Notes = append(d.out.Notes, "what the image has in /home/user is hidden by the private home")
	}
	home.UID, home.GID = uint32(d.out.User.UID), uint32(d.out.User.GID)
	if _, ok := d.child(d.root, "workspace"); !ok {
		return redirects("/workspace")
	}
	if _, err := d.root.Walk(strings.Split(c.WorkingDir, "/"), d.makeDir); err != nil { // docker makes it, too
		return badImage("its working directory %.80q cannot be had: %v", c.WorkingDir, err)
	}
	return d.names()
}

// child finds or makes a directory; it is false for anything else.
func (d *dresser) child(parent *fstree.Node, name string) (*fstree.Node, bool) {
	n := parent.Children[name]
	if n == nil {
		n = fstree.NewDir()
		parent.Children[name] = n
	}
	return n, n.Kind == fstree.Dir
}

func (d *dresser) makeDir(parent *fstree.Node, name string) (*fstree.Node, error) {
	if err := fstree.CheckName(name); err != nil {
		return nil, err
	}
	n, _ := d.child(parent, name)
	return n, nil
}

// mustBeDir refuses an image in which something is mounted on a link: that has
// led runtimes to the host (CVE-2024-21626, CVE-2025-31133, CVE-2025-52565).
func (d *dresser) mustBeDir(name string) error {
	if _, ok := d.child(d.root, name); !ok {
		return redirects("/" + name)
	}
	return nil
}

func redirects(p string) error {
	return &sandbox.Error{Op: "unpack image", Kind: sandbox.ErrDenied, Problem: "its " + p + " is no directory but a link or a file",
		Hint: "use another image, or build it with a directory there", Rule: "built-in: root filesystem stays inside"}
}

func sticky() *fstree.Node {
	n := fstree.NewDir()
	n.Mode = 0o1777
	return n
}

// names writes the files that would name a host.
func (d *dresser) names() error {
	files := syntheticFiles(sandbox.DefaultUser(), "sandbox", "/bin/sh")
	for _, p := range []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"} {
		if err := d.put(p, files[p]); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file of /etc anew, whatever was there.
func (d *dresser) put(p, text string) error {
	n, err := d.write(text)
	if err != nil {
		return err
	}
	n.Mode = 0o644
	d.root.Children["etc"].Children[strings.TrimPrefix(p, "/etc/")] = n
	return nil
}

// who finds out who runs, and completes the account database.
func (d *dresser) who(user string) error {
	passwd, err := d.text("/etc/passwd")
	if err != nil {
		return err
	}
	group, err := d.text("/etc/group")
	if err != nil {
		return err
	}
	u, add, err := whoRuns(user, passwd, group)
	if err != nil {
		return err
	}
	d.out.User, d.out.Root = u, sandbox.RootUser()
	list := accounts(passwd)
	if root, ok := byID(list, 0); ok {
		d.out.Root.Name = root.name
	} else {
		add = "root:x:0:0:root:/root:/bin/sh\n" + add
	}
	if add != "" {
		if err := d.put("/etc/passwd", joined(passwd, add)); err != nil {
			return err
		}
	}
	add = ""
	have := map[int]bool{}
	for _, gid := range groups(group) {
		have[gid] = true
	}
	if !have[0] {
		add += "root:x:0:\n"
	}
	if _, taken := groups(group)[u.Name]; !have[u.GID] && u.GID != 0 && !taken {
		add += fmt.Sprintf("%s:x:%d:\n", u.Name, u.GID)
	}
	if add == "" {
		return nil
	}
	return d.put("/etc/group", joined(group, add))
}

// joined adds lines to a text whose last line may lack its end.
func joined(text []byte, add string) string {
	s := string(text)
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s + add
}

const maxAccountFile = 1 << 20

// text reads a file of /etc of the image; one that is missing is empty. A link
// is followed inside the image.
func (d *dresser) text(p string) ([]byte, error) {
	at := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for range 8 {
		last := len(at) - 1
		dir, err := d.root.Walk(at[:last], nil)
		if errors.Is(err, fstree.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, badImage("its %s is a link that leads nowhere: %v", p, err)
		}
		n := dir.Children[at[last]]
		switch {
		case n == nil:
			return nil, nil
		case n.Kind == fstree.File && n.Size <= maxAccountFile:
			return d.read(n)
		case n.Kind == fstree.File:
			return nil, badImage("its %s is larger than %d bytes", p, maxAccountFile)
		case n.Kind == fstree.Dir:
			return nil, badImage("its %s is a directory", p)
		}
		to := strings.Split(n.Target, "/")
		if at = at[:last:last]; strings.HasPrefix(n.Target, "/") {
			at = nil
		}
		at = append(at, to...)
	}
	return nil, badImage("its %s is a circle of links", p)
}

// readAll reads the contents of n, which is small.
func readAll(r io.ReaderAt, n *fstree.Node) ([]byte, error) {
	b := make([]byte, n.Size)
	_, err := r.ReadAt(b, n.Offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}
