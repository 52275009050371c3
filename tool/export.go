// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// Formats are those of [Export], by name: of OpenAI the tools of its Responses API,
// which has openai-chat for Chat Completions; Anthropic's Messages API; and the
// answer to MCP's tools/list.
func Formats() []string { return []string{"openai", "openai-chat", "anthropic", "mcp"} }

// Export writes tools as a model's API, or an MCP client, takes them. Errors are
// ErrInvalid.
func Export(tools []*Tool, format string) ([]byte, error) {
	var v any
	switch format {
	case "openai":
		v = each(tools, func(t *Tool) any { return t.openAI() })
	case "openai-chat":
		v = each(tools, func(t *Tool) any {
			f := t.openAI()
			f.Type = ""
			return struct {
				Type     string    `json:"type"`
				Function *function `json:"function"`
			}{"function", f}
		})
	case "anthropic":
		v = each(tools, func(t *Tool) any {
			return struct {
				Name        string          `json:"name"`
				Description string          `json:"description,omitempty"`
				InputSchema json.RawMessage `json:"input_schema"`
			}{t.Name, t.Description, t.Params}
		})
	case "mcp":
		v = struct {
			Tools []any `json:"tools"`
		}{each(tools, func(t *Tool) any { return t.mcp() })}
	default:
		return nil, &sandbox.Error{Op: "format " + sandbox.Clip(format, 64), Kind: sandbox.ErrInvalid, Problem: "it is not known", Hint: "known are " + strings.Join(Formats(), ", ")}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return out.Bytes(), err
}

func each(tools []*Tool, as func(*Tool) any) []any {
	out := []any{}
	for _, t := range tools {
		out = append(out, as(t))
	}
	return out
}

// function is OpenAI's. Not strict: that takes a part of JSON Schema alone, in which
// every argument is required.
type function struct {
	Type        string          `json:"type,omitempty"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
}

func (t *Tool) openAI() *function {
	return &function{"function", t.Name, t.Description, t.Params, false}
}

// hints are a definition's as MCP has them, each of them said.
type hints struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

func (t *Tool) mcp() any {
	return struct {
		Name         string          `json:"name"`
		Title        string          `json:"title,omitempty"`
		Description  string          `json:"description,omitempty"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
		Annotations  hints           `json:"annotations"`
	}{t.Name, t.Title, t.Description, t.Params, t.Output, hints{t.ReadOnly, t.Destructive, t.Idempotent, t.OpenWorld}}
}
