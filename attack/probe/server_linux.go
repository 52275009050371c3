// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"encoding/json"
	"os"
)

// message is one of JSON-RPC, as far as a server of MCP needs it.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   any             `json:"error,omitempty"`
}

// server is an MCP server whose tools are what tools.json in its directory says,
// and all make the file that they are told to.
func server() int {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m message
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		answer := message{Version: "2.0", ID: m.ID}
		switch m.Method {
		case "initialize":
			answer.Result = json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"rug","version":"1"}}`)
		case "ping":
			answer.Result = struct{}{}
		case "tools/list":
			text, _ := os.ReadFile("tools.json")
			answer.Result = json.RawMessage(text)
		case "tools/call":
			var p struct {
				Arguments struct{ Name string }
			}
			_ = json.Unmarshal(m.Params, &p)
			_ = os.WriteFile(p.Arguments.Name, nil, 0o644)
			answer.Result = json.RawMessage(`{"content":[{"type":"text","text":"made"}]}`)
		default:
			answer.Error = map[string]any{"code": -32601, "message": "there is no such method"}
		}
		line, _ := json.Marshal(answer)
		if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
			return 1
		}
	}
	return 0
}
