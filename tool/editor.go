// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// EditorNames are what Anthropic calls its text editor, by its versions.
func EditorNames() []string {
	return []string{"str_replace_based_edit_tool", "str_replace_editor"}
}

// Bash is the input of Anthropic's bash tool.
type Bash struct {
	Command string `json:"command"`
	Restart bool   `json:"restart"`
}

// Edit is the input of Anthropic's text editor.
type Edit struct {
	Command string  `json:"command"` // view, create, str_replace, insert
	Path    string  `json:"path"`
	Range   []int   `json:"view_range"` // first and last line, from 1; -1 is the end
	Text    *string `json:"file_text"`
	Old     *string `json:"old_str"`
	New     *string `json:"new_str"`
	Line    *int    `json:"insert_line"` // behind which; 0 is before the first
	// Inserted is the text of insert; older versions have it in new_str.
	Inserted *string `json:"insert_text"`
}

// ReadEdit reads the input of a call of the text editor. Errors are ErrInvalid.
func ReadEdit(input json.RawMessage) (*Edit, error) {
	e := &Edit{}
	if err := DecodeCall(input, e); err != nil {
		return nil, err
	}
	if e.Inserted == nil && e.Command == "insert" {
		e.Inserted = e.New
	}
	problem := ""
	switch {
	case e.Path == "":
		problem = "it has no path"
	case e.Command == "view" && e.Range != nil && (len(e.Range) != 2 || e.Range[0] < 1 || e.Range[1] != -1 && e.Range[1] < e.Range[0]):
		problem = "view_range is not [FIRST, LAST], from 1"
	case e.Command == "view":
	case e.Command == "create" && e.Text == nil:
		problem = "create has no file_text"
	case e.Command == "create":
	case e.Command == "str_replace" && (e.Old == nil || *e.Old == ""):
		problem = "str_replace has no old_str"
	case e.Command == "str_replace":
	case e.Command == "insert" && (e.Line == nil || *e.Line < 0 || e.Inserted == nil):
		problem = "insert has no insert_line, or no insert_text"
	case e.Command == "insert":
	default:
		problem = "its command " + clip(e.Command) + " is not view, create, str_replace or insert"
	}
	if problem != "" {
		return nil, invalidCall(problem, "")
	}
	return e, nil
}

// Apply is the file's new text. Errors are ErrInvalid: the model has to look again.
func (e *Edit) Apply(old string) (string, error) {
	switch e.Command {
	case "create":
		return *e.Text, nil
	case "insert":
		lines := strings.SplitAfter(old, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		if *e.Line > len(lines) {
			return "", invalidCall(fmt.Sprintf("insert_line is %d, and the file has %d lines", *e.Line, len(lines)), "view it")
		}
		added := *e.Inserted
		if added != "" && !strings.HasSuffix(added, "\n") {
			added += "\n"
		}
		if i := *e.Line - 1; i >= 0 && !strings.HasSuffix(lines[i], "\n") {
			lines[i] += "\n"
		}
		return strings.Join(slices.Insert(lines, *e.Line, added), ""), nil
	}
	switch n := strings.Count(old, *e.Old); n {
	case 1:
	case 0:
		return "", invalidCall("old_str is not in the file", "view it, and take the text as it is")
	default:
		return "", invalidCall(fmt.Sprintf("old_str is in the file %d times", n), "take more of what is around it")
	}
	with := ""
	if e.New != nil {
		with = *e.New
	}
	return strings.Replace(old, *e.Old, with, 1), nil
}

// View is a text with the numbers of its lines, or those of them that are wanted.
func (e *Edit) View(content string) (string, error) {
	lines := strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	first, last := 1, len(lines)
	if e.Range != nil {
		if first = e.Range[0]; e.Range[1] != -1 {
			last = min(e.Range[1], last)
		}
		if first > len(lines) {
			return "", invalidCall(fmt.Sprintf("view_range begins at %d, and the file has %d lines", first, len(lines)), "")
		}
	}
	var b strings.Builder
	for i := first; i <= last; i++ {
		fmt.Fprintf(&b, "%6d\t%s\n", i, lines[i-1])
	}
	return b.String(), nil
}
