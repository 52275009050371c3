// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

var (
	errNotJSON = errors.New("a line is not JSON; each is a message of MCP")
	errEmpty   = errors.New("a batch is empty")
)

// parse reads what a line says. A batch, which one version of the protocol had, is taken
// as its messages, each of which is answered by itself; where one is none, none is taken.
func parse(one []byte) ([]jsonrpc.Message, error) {
	if !json.Valid(one) { // the library reads the first value, and forgets the rest
		return nil, errNotJSON
	}
	all := []json.RawMessage{one}
	if bytes.HasPrefix(one, []byte{'['}) {
		all = nil // or the first would be written over what it is read from
		if err := json.Unmarshal(one, &all); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, errEmpty
	}
	messages := make([]jsonrpc.Message, len(all))
	for i, raw := range all {
		var err error
		if messages[i], err = jsonrpc.DecodeMessage(raw); err != nil {
			return nil, err
		}
	}
	return messages, nil
}
