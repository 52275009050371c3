// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// ToolCall is a call of a tool: Name and Arguments, or Call, as a model's API gave
// it (a tool_use block, a function_call or shell_call item, a tool call of Chat
// Completions).
type ToolCall struct {
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Call      json.RawMessage `json:"call,omitempty"`
	// SandboxID is, with Call, the sandbox that it is about where the model named none.
	SandboxID string `json:"sandbox_id,omitempty"`
	// Resumable and Approval are those of Exec.
	Resumable bool   `json:"resumable,omitempty"`
	Approval  string `json:"approval,omitempty"`
}

// ToolResult is what came of a tool that was carried out.
type ToolResult struct {
	Output map[string]any  `json:"output,omitempty"` // of a call by name
	Failed bool            `json:"failed,omitempty"` // it was carried out and did not succeed
	Result json.RawMessage `json:"result,omitempty"` // of a call of a model's: what its API takes back
}

// CallTool calls a tool under the key's policy. The Error that refuses a call of a
// model's has a Result, for the model.
func (c *Client) CallTool(ctx context.Context, t ToolCall) (*ToolResult, error) {
	r := &ToolResult{}
	if err := c.call(ctx, http.MethodPost, "/tools/call", nil, t, r); err != nil {
		return nil, err
	}
	return r, nil
}

// Tools are the definitions of the tools that the key may call, as an API takes
// them: openai (Responses), openai-chat, anthropic, or mcp.
func (c *Client) Tools(ctx context.Context, format string) (json.RawMessage, error) {
	var out json.RawMessage
	err := c.call(ctx, http.MethodGet, "/tools", url.Values{"format": {format}}, nil, &out)
	return out, err
}
