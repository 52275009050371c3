// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// outline is what can be seen of a line that is no message.
type outline struct{ ID, Method, Result, Error json.RawMessage }

func outlined(one []byte) (o outline) {
	_ = json.Unmarshal(one, &o) // what can be
	return o
}

// named says whether a caller waits for an answer with its ID, or was to get this one.
func (o outline) named() bool { return len(o.ID) > 0 && string(o.ID) != "null" }

// maxEchoed is how long an ID may be that is said again.
const maxEchoed = 256

// fault is what JSON-RPC has answered to a line that is no message. An answer is not
// answered, or two who do not understand each other would never end.
func fault(one []byte, why error) []byte {
	o, code, id := outlined(one), jsonrpc.CodeInvalidRequest, json.RawMessage("null")
	switch {
	case o.Method == nil && (o.Result != nil || o.Error != nil):
		return nil
	case errors.Is(why, errNotJSON):
		code = jsonrpc.CodeParseError
	case o.Method != nil && o.named() && len(o.ID) <= maxEchoed && !bytes.ContainsAny(o.ID[:1], "[{tf"):
		id = o.ID
	}
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": line(why.Error(), 300)}})
	return b
}

// meant says whether a line was to be a message, as far as can be seen: what has an ID,
// what was cut or written into, and what is too much to be looked at.
func meant(one []byte, why error) bool {
	switch {
	case errors.Is(why, errLong), errors.Is(why, errMuch):
		return true
	case errors.Is(why, errNotJSON):
		return bytes.Contains(one, []byte(`"jsonrpc"`))
	}
	return outlined(one).named()
}

// odd judges a line of the server's that is no message. What it prints beside messages is
// shown like its standard error. But a caller may wait for what was meant as one, and would
// do so in vain: that ends it.
func (u *upstream) odd(shown *complaints) func([]byte, error) ([]byte, error) {
	return func(one []byte, why error) ([]byte, error) {
		if !meant(one, why) {
			fmt.Fprintf(shown, "%s\n", one[:min(len(one), maxComplaint)])
			return nil, nil
		}
		u.g.o.Notice(fmt.Sprintf("server %s: %s", u.o.Name, line(why.Error(), 300)))
		return nil, why
	}
}
