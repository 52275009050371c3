// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/sandbox"
)

func (a *app) sandboxCopy(d *daemon) *cobra.Command {
	return a.sub(d, sub{
		use: "cp FROM TO", short: "Copy files and directories into a sandbox or out of it", args: some(2, 2, "two paths, one of them ID:PATH"),
		long: `Copy files and directories into a sandbox or out of it; one of the two is ID:PATH.
- is standard input or output. What is in the sandbox was made by its code: its
directories are copied without links, and never to outside of the directory that
you name.`,
		example: `  caisson sandbox cp ./data.csv ID:data.csv
  caisson sandbox cp ./src ID:/home/user/src
  caisson sandbox cp ID:out/report.pdf .
  caisson sandbox cp ID:/var/log/x - | less`,
		run: func(ctx context.Context, cmd *cobra.Command, c *client.Client, args []string) error {
			from, to := placeOf(args[0]), placeOf(args[1])
			switch {
			case (from.box == "") == (to.box == ""):
				return usage(cmd, "one of the two is in a sandbox", "write it as ID:PATH")
			case from.box == "":
				return a.copyIn(ctx, c, from.path, to)
			default:
				return a.copyOut(ctx, c, from, to.path)
			}
		},
	})
}

// place is a path, in a sandbox where that is named.
type place struct{ box, path string }

// placeOf reads ID:PATH. A path of this machine that looks like one begins at ./.
func placeOf(s string) place {
	id, p, ok := strings.Cut(s, ":")
	if ok && len(id) > 2 && strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyz") == "" {
		return place{id, p}
	}
	return place{"", s}
}

// copyIn copies a file or a directory of this machine.
func (a *app) copyIn(ctx context.Context, c *client.Client, from string, to place) error {
	if from == stdinName {
		_, err := c.Files(to.box).Write(ctx, to.path, a.in, 0)
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return &sandbox.Error{Op: "cp " + sandbox.Quoted(from), Kind: sandbox.ErrNotFound, Problem: "it cannot be read", Cause: err}
	}
	if to.path == "" || strings.HasSuffix(to.path, "/") {
		to.path += filepath.Base(from)
	}
	if !info.IsDir() {
		return copyFileIn(ctx, c, from, to)
	}
	return filepath.WalkDir(from, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		at := place{to.box, path.Join(to.path, filepath.ToSlash(rel))}
		switch {
		case e.IsDir():
			if err := c.Files(at.box).Mkdir(ctx, at.path); err != nil && !errors.Is(err, sandbox.ErrConflict) {
				return err
			}
		case e.Type().IsRegular():
			return copyFileIn(ctx, c, p, at)
		default:
			a.note("%s is no file or directory, and was left out", sandbox.Quoted(p))
		}
		return nil
	})
}

func copyFileIn(ctx context.Context, c *client.Client, from string, to place) error {
	f, err := files.Open(from)
	if err != nil {
		return &sandbox.Error{Op: "cp " + sandbox.Quoted(from), Kind: sandbox.ErrNotFound, Problem: "it cannot be read", Cause: err}
	}
	defer f.Close()
	_, err = c.Files(to.box).Write(ctx, to.path, f, f.Mode.Perm())
	return err
}

// maxDepth is how many levels of a directory are copied out.
const maxDepth = 64

// copyOut copies a file or a directory of a sandbox.
func (a *app) copyOut(ctx context.Context, c *client.Client, from place, to string) error {
	if to == stdinName {
		return copyFileOut(ctx, c, from.box, from.path, a.out)
	}
	f, err := c.Files(from.box).Stat(ctx, from.path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() && f.Kind != "directory" {
		name := path.Base(from.path)
		if !filepath.IsLocal(name) || name == "." {
			return usageless("cp", "the file has no name that it could have here", "name one")
		}
		to = filepath.Join(to, name)
	}
	if f.Kind != "directory" {
		return saveFile(ctx, c, from.box, from.path, func() (*os.File, error) { return os.Create(to) })
	}
	return a.copyTreeOut(ctx, c, from.box, f.Path, to)
}

func usageless(op, problem, hint string) error {
	return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
}

// copyTreeOut copies a directory. Its names were made inside: all that is made of
// them is made below to, through a descriptor of it.
func (a *app) copyTreeOut(ctx context.Context, c *client.Client, id, from, to string) error {
	all, err := c.Files(id).List(ctx, from, maxDepth)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return &sandbox.Error{Op: "cp " + sandbox.Quoted(to), Kind: sandbox.ErrUnavailable, Problem: "the directory cannot be made", Cause: err}
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, e := range all {
		rel, ok := strings.CutPrefix(e.Path, strings.TrimSuffix(from, "/")+"/")
		name := filepath.FromSlash(rel)
		switch {
		case !ok || !filepath.IsLocal(name):
			a.note("%s lies elsewhere, and was left out", sandbox.Quoted(e.Path))
		case e.Target != "" || e.Kind == "other":
			a.note("%s is no file or directory, and was left out", sandbox.Quoted(e.Path))
		case e.Kind == "directory":
			err = root.MkdirAll(name, 0o755)
		default:
			if err = root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				break
			}
			mode, _ := strconv.ParseUint(e.Mode, 8, 12)
			err = saveFile(ctx, c, id, e.Path, func() (*os.File, error) {
				// No set-user-id bits: the file belongs to the user of this
				// program.
				return root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fs.FileMode(mode)&0o777|0o600)
			})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", sandbox.Quoted(e.Path), err)
		}
	}
	return nil
}

func saveFile(ctx context.Context, c *client.Client, id, from string, open func() (*os.File, error)) error {
	f, err := open()
	if err != nil {
		return &sandbox.Error{Op: "cp", Kind: sandbox.ErrUnavailable, Problem: "the file cannot be written", Cause: err}
	}
	return errors.Join(copyFileOut(ctx, c, id, from, f), f.Close())
}

func copyFileOut(ctx context.Context, c *client.Client, id, from string, to io.Writer) error {
	r, err := c.Files(id).Read(ctx, from)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.Copy(to, r); err != nil {
		return &sandbox.Error{Op: "cp " + sandbox.Quoted(from), Kind: sandbox.ErrUnavailable, Problem: "it was not copied whole", Cause: err}
	}
	return nil
}
