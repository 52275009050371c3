// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// commit is what a commit leads to.
type commit struct {
	tree    ID
	parents []ID
}

const maxParents = 64

// ident is what git fsck takes for who wrote a commit and when.
var ident = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[^<>\n\x00]* )?<[^<>\n\x00]*> (?:0|[1-9][0-9]{0,14}) [+-][0-9]{4}$`)
})

// parseCommit reads a commit, and takes only one that git fsck has nothing against.
func parseCommit(b []byte) (c commit, err error) {
	if bytes.IndexByte(b, 0) >= 0 {
		return c, errors.New("a commit has a NUL byte")
	}
	head, _, ok := strings.Cut(string(b), "\n\n")
	if !ok {
		if head, ok = strings.CutSuffix(string(b), "\n"); !ok {
			return c, errors.New("the head of a commit has no end")
		}
	}
	lines := strings.Split(head, "\n")
	next := func(key string) (string, bool) {
		if len(lines) == 0 {
			return "", false
		}
		v, ok := strings.CutPrefix(lines[0], key+" ")
		if ok {
			lines = lines[1:]
		}
		return v, ok
	}
	v, ok := next("tree")
	if !ok {
		return c, errors.New("a commit does not begin with its tree")
	}
	if c.tree, err = ParseID(v); err != nil {
		return c, err
	}
	for {
		v, ok := next("parent")
		if !ok {
			break
		}
		id, err := ParseID(v)
		if err != nil {
			return c, err
		}
		if c.parents = append(c.parents, id); len(c.parents) > maxParents {
			return c, fmt.Errorf("a commit has more than %d parents", maxParents)
		}
	}
	for _, key := range []string{"author", "committer"} {
		if v, ok := next(key); !ok || !ident().MatchString(v) {
			return c, fmt.Errorf("a commit has no %s as git writes it", key)
		}
	}
	return c, checkFurther(lines)
}

// checkFurther checks what stands in the head of a commit after those who made it.
func checkFurther(lines []string) error {
	for i, line := range lines {
		key, _, ok := strings.Cut(line, " ")
		switch {
		case ok && key == "" && i > 0: // the line before goes on
		case !ok || key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-:_") != "":
			return errors.New("the head of a commit has a line that is none")
		case key == "tree" || key == "parent" || key == "author" || key == "committer":
			return fmt.Errorf("the head of a commit has a second %s", key)
		}
	}
	return nil
}
