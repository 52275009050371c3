// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Bounds of what an answer holds of a cell: it goes to a model.
const (
	maxShown        = 64        // results
	maxShownText    = 256 << 10 // bytes of their texts together
	maxPictures     = 16
	maxPictureBytes = 16 << 20 // of all pictures together
)

// cell carries out run_code in a context of a sandbox.
func (t *run) cell(ctx context.Context) (*Answer, error) {
	invalid := func(problem, hint string) error {
		return t.refuse(ctx, &sandbox.Error{Op: "argument /context", Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint})
	}
	switch id := t.args.Text("context"); {
	case t.use.Sandbox == "" || t.boxes == nil:
		return nil, invalid("a context is one of a persistent sandbox, and there is no sandbox_id", "make one with create_sandbox, or leave the context out")
	case t.args.Given("args") || t.args.Given("stdin"):
		return nil, invalid("code in a context has neither arguments nor input", "write them into the code, or leave the context out")
	case interpreter.CheckID(id) != nil:
		return nil, invalid("it is not 1 to 64 of letters, digits, and . _ -", "")
	}
	c := t.code()
	if c.Argv = nil; c.Source.Language == "r" {
		c.Source.Language = "ir" // as its Jupyter kernel is called
	}
	c.Source.Language, c.Source.MakeContext = interpreter.Language(c.Source.Language), true
	t.around(c)
	c.Frontend, c.Actor, c.Operator, c.Tool, c.Account = t.call.Frontend, t.actor, t.call.Operator, t.use, t.account
	t.asked(c)
	told := newCellTold(t)
	res, err := t.boxes.RunCell(ctx, t.use.Sandbox, c, t.args.Text("context"), told.event)
	if err != nil {
		return nil, err
	}
	return told.answer(t, res), nil
}

// cellTold is what a model is told of a cell.
type cellTold struct {
	stdout, stderr *tee
	results        []any
	left           int // bytes of the texts of further results
	omitted        int
	pictures       []Picture
	pictureBytes   int
	exit           int // of a shell's last command
	end            interpreter.Ending
}

func newCellTold(t *run) *cellTold {
	return &cellTold{stdout: newTee(t.call.Stdout), stderr: newTee(t.call.Stderr), left: maxShownText, results: []any{}}
}

// event takes the next event of the cell.
func (c *cellTold) event(e interpreter.Event) (err error) {
	switch e.Type {
	case interpreter.Stdout:
		_, err = c.stdout.Write([]byte(e.Text))
	case interpreter.Stderr:
		_, err = c.stderr.Write([]byte(e.Text))
	case interpreter.Failure:
		if e.Error.Name == interpreter.ExitCode {
			c.exit, _ = strconv.Atoi(e.Error.Value)
			return nil
		}
		text := e.Error.Traceback
		if text == "" {
			text = e.Error.Name + ": " + e.Error.Value
		}
		_, err = c.stderr.Write([]byte(strings.TrimSuffix(text, "\n") + "\n"))
	case interpreter.Display:
		c.show(e.Result)
	case interpreter.End:
		c.end = *e.End
	}
	return err
}

// textForms are the forms of a result that a model reads, best first.
var textForms = []string{"text/plain", "text/markdown", "text/latex", "application/json", "text/html"}

// show keeps a result: its text, its pictures, and the names of its other forms.
func (c *cellTold) show(r *interpreter.Result) {
	if len(c.results) == maxShown {
		c.omitted++
		return
	}
	out := map[string]any{"forms": slices.Sorted(maps.Keys(r.Data))}
	if r.Main {
		out["main"] = true
	}
	for _, kind := range textForms {
		if v, ok := r.Data[kind]; ok {
			var text string
			if json.Unmarshal(v, &text) != nil {
				text = string(v)
			}
			text = sandbox.Clip(text, max(c.left, 0))
			c.left -= len(text)
			out["text"] = text
			break
		}
	}
	for _, kind := range []string{"image/png", "image/jpeg"} {
		var text string
		if json.Unmarshal(r.Data[kind], &text) != nil {
			continue
		}
		p := pictureOf(text)
		if p == nil || len(c.pictures) == maxPictures || c.pictureBytes+len(p.Data) > maxPictureBytes {
			out["omitted"] = true
			continue
		}
		c.pictures, c.pictureBytes = append(c.pictures, *p), c.pictureBytes+base64.StdEncoding.EncodedLen(len(p.Data))
		break
	}
	c.results = append(c.results, out)
}

// answer is all of it, in the words of the output schema.
func (c *cellTold) answer(t *run, res *sandbox.Result) *Answer {
	out := programOutput(res, c.stdout, c.stderr)
	out["sandbox_id"], out["context"], out["results"] = t.use.Sandbox, t.args.Text("context"), c.results
	if language, _ := t.args["language"].(string); interpreter.Language(language) == interpreter.Bash && (c.end.Status == interpreter.Done || c.exit != 0) {
		out["exit_code"] = c.exit
	}
	if c.omitted > 0 {
		out["results_omitted"] = c.omitted
	}
	if c.end.Cut > 0 {
		out["reason"] = strings.TrimPrefix(res.Reason+"; "+session.Size(c.end.Cut)+" of output were cut", "; ")
	}
	files := []any{}
	for _, f := range c.end.Files {
		files = append(files, f.Path)
	}
	if len(files) > 0 {
		out["files"] = files
	}
	return &Answer{Output: out, Failed: res.Status != sandbox.StatusSuccess, Result: res, Pictures: c.pictures}
}
