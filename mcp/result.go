// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"encoding/json"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/tool/params"
)

// verdictKey is where in a result's _meta programs find why a call was refused.
const verdictKey = "run.caisson/verdict"

// verdict is why a call was not carried out, for people and for programs.
type verdict struct {
	Status string         `json:"status"` // denied, invalid, unavailable, exhausted
	Reason string         `json:"reason"`
	Rule   string         `json:"rule,omitempty"`
	Hint   string         `json:"hint,omitempty"`
	Faults []params.Fault `json:"faults,omitempty"`

	// protocol is what the client is to get in its place, where it is the client that
	// has to act, and no model.
	protocol error
}

func (v *verdict) Error() string { return v.Reason }

// result is the answer that a model can read and act on.
func (v *verdict) result() *sdk.CallToolResult {
	text := v.Status + ": " + v.Reason
	for _, f := range v.Faults {
		text += "\n  " + f.Path + ": " + f.Problem
	}
	if v.Rule != "" {
		text += "\nrule: " + v.Rule
	}
	if v.Hint != "" {
		text += "\nhint: " + v.Hint
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: text}}, Meta: sdk.Meta{verdictKey: v}}
}

// outcome is a verdict as the record has it.
func (v *verdict) outcome() *sandbox.Result {
	return &sandbox.Result{Status: sandbox.StatusDenied, Reason: v.Reason, Rule: v.Rule, Hint: v.Hint}
}

// maxContents is how many contents a result may have; each costs its reader
// something however small it is.
const maxContents = 1000

// bounded cuts a result to at most most bytes: texts are cut, other contents and
// structured ones that do not fit are left out, and it says so.
func bounded(res *sdk.CallToolResult, maximum int64) {
	left, out, lost := maximum, 0, int64(0)
	res.Meta = nil
	if n := size(res.StructuredContent); res.StructuredContent != nil && n > left {
		// Clients check it with the tool's schema; without it this is no answer.
		res.StructuredContent, res.IsError = nil, true
		out, lost = 1, n
	} else if res.StructuredContent != nil {
		left -= n
	}
	kept := make([]sdk.Content, 0, min(len(res.Content), maxContents))
	for _, c := range res.Content {
		n := size(c)
		text, isText := c.(*sdk.TextContent)
		switch {
		case n <= left && len(kept) < maxContents:
			left -= n
			kept = append(kept, c)
			continue
		case isText && left > minCut && len(kept) < maxContents:
			cut := textCut(text.Text, min(left, int64(len(text.Text))))
			kept = append(kept, &sdk.TextContent{Text: cut})
			n, left = max(n-int64(len(cut)), 1), 0
		}
		out, lost = out+1, lost+n
	}
	if out > 0 {
		kept = append(kept, &sdk.TextContent{Text: fmt.Sprintf("[%d bytes of %d contents were left out: a result may have %d bytes and %d contents]", lost, out, maximum, maxContents)})
	}
	res.Content = kept
}

// minCut is the least of a text that is worth showing.
const minCut = 64

func size(v any) int64 {
	b, err := json.Marshal(v)
	if err != nil {
		return 1 << 40 // what cannot be written does not fit
	}
	return int64(len(b))
}

// textCut is the beginning and the end of s, n bytes of it at most, without half a
// character, and between them how many bytes are missing.
func textCut(s string, n int64) string {
	ends := session.NewEnds(n)
	_, _ = ends.Write([]byte(s))
	b, cut, at := ends.Bytes()
	if cut == 0 {
		return s
	}
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", b[:at], cut, b[at:])
}
