// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// File is a file that the agent offers for collection. Path was checked: it is
// relative, clean, free of control characters, matches a pattern, was not
// offered before, and has no offered file as a directory. It is still a name
// that hostile code chose: open it below a directory of the caller's with
// os.Root, as a new file.
type File struct {
	Path string
	Mode fs.FileMode // permission bits
}

// CollectLimits bound a collection; 0 is the default.
type CollectLimits struct {
	Files int   // 1000
	Bytes int64 // of all files together; 256 MiB
	Depth int   // directories below the root; 32
}

// Collected is one file that came out whole.
type Collected struct {
	Path   string
	Size   int64 // bytes that arrived
	SHA256 string
}

// Link is a symbolic link that matched. Its Path was checked as a File's is; its Target is
// what hostile code wrote.
type Link struct{ Path, Target string }

// Skipped is a match that did not come out, in the agent's words, made
// printable.
type Skipped struct{ Path, Reason, Target string }

// Collection is what came of a Collect.
type Collection struct {
	Files     []Collected
	Links     []Link
	Skipped   []Skipped
	Unmatched []string // patterns that no file or skipped name matched
}

// Collect copies the files below root, an absolute directory inside, that match
// one of the patterns (see wire.Glob). For each it calls open, writes the
// content to what that returns, and closes it if it is an io.Closer; the next one
// is opened only when the one before came out whole. Symbolic links are never
// followed; those that match are in Links.
//
// On an error the Collection holds what came out until then; a file that was
// cut short is not in it, though open was called for it.
func (c *Client) Collect(ctx context.Context, patterns []string, root string, open func(File) (io.Writer, error), l CollectLimits) (*Collection, error) {
	const op = "collect files"
	l = l.withDefaults()
	q := wire.CollectRequest{Root: root, Patterns: patterns, MaxFiles: l.Files, MaxBytes: l.Bytes, MaxDepth: l.Depth}
	globs, err := q.Check()
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: err.Error(), Hint: "patterns are relative to the working directory, such as out/**/*.png"}
	}
	b, err := json.Marshal(q)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "the request cannot be written", Cause: err}
	}
	ctx, cancel := c.transfer(ctx)
	defer cancel(nil)
	resp, release, err := c.roundTrip(ctx, http.MethodPost, wire.PathCollect, bytes.NewReader(b), "application/json")
	if err != nil {
		return nil, c.lost(op, err)
	}
	defer release()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, answeredError(op, resp)
	}
	body := &watched{r: resp.Body, idle: c.options.IdleTimeout, hangUp: cancel}
	r := &receiver{
		frames: wire.NewReader(body), globs: globs, limits: l, open: open, hit: make([]bool, len(globs)),
		files: make(map[string]bool), dirs: make(map[string]bool), buf: make([]byte, chunk),
	}
	err = r.receive()
	var mine *sandbox.Error
	if err != nil && !errors.As(err, &mine) {
		err = c.lost(op, err)
	}
	for i, hit := range r.hit {
		if !hit {
			r.got.Unmatched = append(r.got.Unmatched, patterns[i])
		}
	}
	return &r.got, err
}

func (l CollectLimits) withDefaults() CollectLimits {
	if l.Files == 0 {
		l.Files = 1000
	}
	if l.Bytes == 0 {
		l.Bytes = 256 << 20
	}
	if l.Depth == 0 {
		l.Depth = 32
	}
	return l
}

// receiver takes a collection from the agent, whom it does not trust: every
// bound that the agent was told is held here.
type receiver struct {
	frames *wire.Reader
	globs  []wire.Glob
	limits CollectLimits
	open   func(File) (io.Writer, error)

	got         Collection
	hit         []bool          // by pattern
	files, dirs map[string]bool // names that are taken, and the directories above them
	bytes       int64
	buf         []byte
}

// refuse is the error for an agent that breaks the rules.
func refuse(format string, args ...any) error {
	return &sandbox.Error{
		Op: "collect files", Kind: sandbox.ErrDenied, Problem: fmt.Sprintf(format, args...),
		Rule: "built-in: what leaves a sandbox", Hint: "the sandbox's answers are not to be trusted; nothing more was taken from it",
	}
}

func (r *receiver) receive() error {
	for {
		k, _, err := r.frames.Next()
		if err != nil {
			return unexpected(err)
		}
		switch k {
		case wire.File:
			err = r.file()
		case wire.Skipped:
			err = r.skipped()
		case wire.Done:
			var e wire.DoneEvent
			if err := r.frames.JSON(&e); err != nil {
				return err
			}
			if e.Error != "" {
				return tooMuch("%s", printable(e.Error))
			}
			return nil
		case wire.Alive:
		default:
			return fmt.Errorf("frame %q has no place in a collection", byte(k))
		}
		if err != nil {
			return err
		}
	}
}

// accept checks an offered name against everything that a host's file system
// could be made to do with it.
func (r *receiver) accept(name string) error {
	if err := wire.CheckPath(name); err != nil {
		return refuse("the sandbox offers the name %q: %v", shorten(name), err)
	}
	matched := false
	for i, g := range r.globs {
		if g.Match(name) {
			matched, r.hit[i] = true, true
		}
	}
	switch {
	case !matched:
		return refuse("the sandbox offers %q, which was not asked for", name)
	case strings.Count(name, "/") > r.limits.Depth:
		return refuse("%q lies deeper than %d directories", name, r.limits.Depth)
	case r.files[name]:
		return refuse("the sandbox offers %q twice", name)
	case r.dirs[name]:
		return refuse("the sandbox offers %q as a file and as a directory", name)
	case len(r.files) >= r.limits.Files:
		return refuse("there are more than %d files", r.limits.Files)
	}
	for i, b := range name {
		if b == '/' {
			if r.files[name[:i]] {
				return refuse("the sandbox offers %q as a file and as a directory", name[:i])
			}
			r.dirs[name[:i]] = true
		}
	}
	r.files[name] = true
	return nil
}

// file takes one file.
func (r *receiver) file() error {
	var e wire.FileEvent
	if err := r.frames.JSON(&e); err != nil {
		return err
	}
	if err := r.accept(e.Path); err != nil {
		return err
	}
	w, err := r.open(File{Path: e.Path, Mode: fs.FileMode(e.Mode).Perm()})
	if err != nil {
		return unsaved(e.Path, err)
	}
	sum := sha256.New()
	size, err := r.content(io.MultiWriter(w, sum))
	if c, ok := w.(io.Closer); ok {
		if e := c.Close(); e != nil && err == nil {
			err = fmt.Errorf("%w: %w", errSink, e)
		}
	}
	if errors.Is(err, errSink) {
		return unsaved(e.Path, err)
	}
	if err != nil {
		return err
	}
	r.got.Files = append(r.got.Files, Collected{Path: e.Path, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}

// unsaved is the error for a file that the caller's writer did not take. One that is
// for people already says so itself.
func unsaved(name string, err error) error {
	var own *sandbox.Error
	if errors.As(err, &own) {
		return own
	}
	return &sandbox.Error{Op: "collect " + name, Kind: sandbox.ErrUnavailable, Problem: "it cannot be saved", Cause: err,
		Hint: "make room where it goes, or save it elsewhere"}
}

// tooMuch is the error for a collection that is over its bounds, or that the agent
// cannot make.
func tooMuch(format string, args ...any) error {
	return &sandbox.Error{Op: "collect files", Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf(format, args...),
		Hint: "let the pattern match less, raise the limit (--collect-files, --collect-size), or have the program pack it into one file"}
}

// content takes a file's bytes until its end.
func (r *receiver) content(w io.Writer) (int64, error) {
	var size int64
	for {
		k, _, err := r.frames.Next()
		if err != nil {
			return size, unexpected(err)
		}
		switch k {
		case wire.Data:
			n, err := copyBounded(w, r.frames, r.limits.Bytes-r.bytes)
			size, r.bytes = size+n, r.bytes+n
			if errors.Is(err, errTooLarge) {
				return size, tooMuch("the files are larger than %d bytes", r.limits.Bytes)
			}
			if err != nil {
				return size, err
			}
		case wire.FileEnd:
			var e wire.FileEndEvent
			if err := r.frames.JSON(&e); err != nil {
				return size, err
			}
			if e.Error != "" {
				return size, sandbox.Errorf(sandbox.ErrUnavailable, "collect files", "%s", printable(e.Error))
			}
			return size, nil
		case wire.Done: // the agent gave up within the file
			var e wire.DoneEvent
			if err := r.frames.JSON(&e); err != nil {
				return size, err
			}
			return size, tooMuch("%s", printable(e.Error))
		default:
			return size, fmt.Errorf("frame %q has no place in a file", byte(k))
		}
	}
}

// skipped takes the report of a match that stays inside.
func (r *receiver) skipped() error {
	var e wire.SkippedEvent
	if err := r.frames.JSON(&e); err != nil {
		return err
	}
	if len(r.got.Skipped) >= r.limits.Files {
		return refuse("the sandbox reports more than %d skipped names", r.limits.Files)
	}
	if e.Target != "" && wire.CheckPath(e.Path) == nil {
		r.got.Links = append(r.got.Links, Link{e.Path, e.Target})
		return r.accept(e.Path)
	}
	for i, g := range r.globs {
		r.hit[i] = r.hit[i] || g.Match(e.Path)
	}
	r.got.Skipped = append(r.got.Skipped, Skipped{printable(e.Path), printable(e.Reason), printable(e.Target)})
	return nil
}

// shorten keeps a hostile name from filling an error.
func shorten(s string) string { return sandbox.Clip(s, 256) }

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
