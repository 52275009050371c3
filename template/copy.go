// SPDX-License-Identifier: Apache-2.0

package template

import (
	"path"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// copy is a COPY.
func (f *dockerfile) copy(c *instructions.CopyCommand, n *parser.Node) error {
	from, err := f.expander.word(c.From, f.env)
	if err != nil {
		return err
	}
	out := Copy{Chown: c.Chown, Chmod: c.Chmod}
	if out.From, out.FromImage, err = f.source(from); err != nil {
		return err
	}
	return f.copies(out, c.SourcesAndDest, n)
}

// add is an ADD of local files.
func (f *dockerfile) add(c *instructions.AddCommand, n *parser.Node) error {
	for _, src := range c.SourcePaths {
		if isRemote(src) {
			return notCarried("fetch it in a RUN, with the host in the build's network", "ADD of %s", quote(src))
		}
	}
	out := Copy{From: ContextDir, Chown: c.Chown, Chmod: c.Chmod, Extract: c.Unpack == nil || *c.Unpack}
	return f.copies(out, c.SourcesAndDest, n)
}

// isRemote says whether ADD fetches a source, by the forms that docker knows.
func isRemote(src string) bool {
	for _, prefix := range []string{"http://", "https://", "git://", "ssh://", "git@", "github.com/"} {
		if strings.HasPrefix(src, prefix) {
			return true
		}
	}
	repository, _, _ := strings.Cut(src, "#")
	return strings.Contains(src, "://") || strings.HasSuffix(repository, ".git") && strings.Contains(repository, ":")
}

// copies adds the step.
func (f *dockerfile) copies(c Copy, of instructions.SourcesAndDest, n *parser.Node) error {
	for _, src := range of.SourcePaths {
		src, err := checkSource(src)
		if err != nil {
			return err
		}
		c.Sources = append(c.Sources, src)
	}
	for _, file := range of.SourceContents {
		if file.Path == "." || file.Path == ".." || strings.ContainsAny(file.Path, "/\x00") {
			return invalid("name the heredoc for the file", "%s is no name of a file", quote(file.Path))
		}
		c.Inline = append(c.Inline, File{Name: file.Path, Data: file.Data})
	}
	if err := c.settle(of.DestPath, f.config.Dir); err != nil {
		return err
	}
	f.step(n, Step{Copy: &c})
	return nil
}

// settle checks what the readers have in common, and sets Target.
func (c *Copy) settle(target, dir string) error {
	if target == "" {
		return invalid("write where the files go", "there is no target")
	}
	isDir := strings.HasSuffix(target, "/") || target == "." || strings.HasSuffix(target, "/.")
	if n := len(c.Sources) + len(c.Inline); n > 1 && !isDir {
		return invalid("write / at its end", "with %d sources the target %s must be a directory", n, quote(target))
	}
	if c.Target = path.Clean(target); !path.IsAbs(target) && dir != "" {
		c.Target = path.Join(dir, target)
	}
	if !path.IsAbs(c.Target) && (c.Target == ".." || strings.HasPrefix(c.Target, "../")) {
		return invalid("write an absolute path", "the target %s starts from a directory that is not known", quote(target))
	}
	if isDir && c.Target != "/" {
		c.Target += "/"
	}
	if c.Chown != "" {
		if err := checkUser(c.Chown); err != nil {
			return err
		}
	}
	return checkMode(c.Chmod)
}

// checkSource makes a source clean and relative.
func checkSource(src string) (string, error) {
	clean := path.Clean(strings.TrimLeft(src, "/"))
	if src == "/" {
		clean = "."
	}
	if src == "" || clean == ".." || strings.HasPrefix(clean, "../") {
		return "", invalid("move it there, or give a directory that holds it", "%s lies outside of the directory that files come from", quote(src))
	}
	if _, err := path.Match(clean, ""); err != nil {
		return "", invalid(`write \ before what is meant as it stands`, "%s is no pattern", quote(src))
	}
	return clean, nil
}

func checkMode(s string) error {
	if s != "" && (len(s) < 3 || len(s) > 4 || strings.Trim(s, "01234567") != "") {
		return invalid("write it in octal: 0755", "%s is no mode", quote(s))
	}
	return nil
}
