// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/session"
)

// cellShow shows what cells tell: text as a program's output is shown, pictures where the terminal
// can, and as files elsewhere.
type cellShow struct {
	*app
	out, errs io.Writer
	stop      []func()
	dir       string   // where pictures are saved; empty is not made yet
	saves     *os.Root // the same, once it was opened
	saved     int
	shows     func(png []byte) string // a picture for the terminal; nil is that it cannot
}

func newCellShow(a *app, f *replFlags) *cellShow {
	s := &cellShow{app: a, dir: f.pictures}
	var stop func()
	s.out, stop = a.output(a.out.file, &f.runFlags)
	s.stop = append(s.stop, stop)
	s.errs, stop = a.output(a.err, &f.runFlags)
	s.stop = append(s.stop, stop)
	if isTerminal(a.out.file) && f.pictures == "" {
		s.shows = picturesOf(os.Getenv)
	}
	return s
}

func (s *cellShow) end() {
	for _, stop := range s.stop {
		stop()
	}
	if s.saves != nil {
		s.saves.Close()
	}
}

// plain ends what a cell has left open at the terminal: a colour, or a sequence that would swallow
// what follows.
func (s *cellShow) plain() {
	for _, w := range []io.Writer{s.out, s.errs} {
		if f, ok := w.(*filter); ok {
			_ = f.Close() // what it writes is shown, or nothing is
		}
	}
}

// event shows the next event.
func (s *cellShow) event(e interpreter.Event) (err error) {
	switch e.Type {
	case interpreter.Stdout:
		_, err = io.WriteString(s.out, e.Text)
	case interpreter.Stderr:
		_, err = io.WriteString(s.errs, e.Text)
	case interpreter.Failure:
		if e.Error.Name == interpreter.ExitCode { // a shell says nothing of it
			return nil
		}
		text := strings.TrimSuffix(e.Error.Traceback, "\n")
		if text == "" {
			text = e.Error.Name + ": " + e.Error.Value
		}
		_, err = io.WriteString(s.errs, text+"\n")
	case interpreter.Display:
		err = s.result(e.Result)
	case interpreter.End:
		s.plain()
		s.ending(e.End)
	}
	return err
}

// shownForms are the forms of a result that a terminal shows as they are, best first.
var shownForms = []string{"text/plain", "text/markdown", "text/latex", "application/json"}

// result shows one result: its picture, else its text, else that it has neither.
func (s *cellShow) result(r *interpreter.Result) error {
	for _, kind := range []string{"image/png", "image/jpeg"} {
		var text string
		if json.Unmarshal(r.Data[kind], &text) != nil {
			continue
		}
		png, err := cleanPicture(text)
		if err != nil {
			s.note("a picture that is not shown: %v", err)
			continue
		}
		return s.picture(png)
	}
	for _, kind := range shownForms {
		v, ok := r.Data[kind]
		if !ok {
			continue
		}
		var text string
		if json.Unmarshal(v, &text) != nil {
			text = string(v)
		}
		_, err := io.WriteString(s.out, strings.TrimSuffix(text, "\n")+"\n")
		return err
	}
	s.note("a result of the kinds %s, which a terminal does not show", strings.Join(slices.Sorted(maps.Keys(r.Data)), ", "))
	return nil
}

// picture shows a picture, or saves it.
func (s *cellShow) picture(png []byte) error {
	if s.shows != nil {
		_, err := io.WriteString(s.app.out.file, s.shows(png)+"\n") // made here, of a picture that was written anew here
		return err
	}
	if err := s.openDir(); err != nil {
		return err
	}
	for {
		s.saved++
		name := fmt.Sprintf("%d.png", s.saved)
		f, err := s.saves.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // follows no link
		if os.IsExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.Write(png)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			s.note("picture: %s", filepath.Join(s.dir, name))
		}
		return err
	}
}

// openDir opens the directory of pictures, once: what takes its place later gets none.
func (s *cellShow) openDir() (err error) {
	switch {
	case s.saves != nil:
		return nil
	case s.dir == "":
		s.dir, err = os.MkdirTemp("", "caisson-pictures-")
	default:
		err = os.MkdirAll(s.dir, 0o777)
	}
	if err == nil {
		s.saves, err = os.OpenRoot(s.dir)
	}
	return err
}

// maxNamed is how many files of a cell are named.
const maxNamed = 10

// ending says how a cell ended, where that is not seen already, and which files it made.
func (s *cellShow) ending(e *interpreter.Ending) {
	if e.Cut > 0 {
		s.say("%s of output were cut", session.Size(e.Cut))
	}
	switch e.Status {
	case interpreter.TimedOut, interpreter.Interrupted, interpreter.Lost:
		word := map[string]string{interpreter.TimedOut: "its time was over", interpreter.Interrupted: "interrupted", interpreter.Lost: "the context was lost, with its state"}[e.Status]
		if e.Reason != "" {
			word += ": " + e.Reason
		}
		s.say("%s", word)
	}
	for i, f := range e.Files {
		if i == maxNamed {
			s.note("and %d files more", len(e.Files)-i)
			break
		}
		s.note("file: %s, %s", f.Path, session.Size(f.Size))
	}
}
