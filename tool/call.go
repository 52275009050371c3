// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params"
)

// Call is one call.
type Call struct {
	// ID is the model's name for the call.
	ID string
	// Name is the tool's, and Args are its arguments, a JSON object; both are empty
	// of a shell call.
	Name string
	Args json.RawMessage
	// Shell is a call of OpenAI's shell tool.
	Shell *Shell
	// Anthropic says that a tool that is not declared here may be one of Anthropic's.
	Anthropic bool

	form string
}

// Shell is what OpenAI's shell tool is to run: each of Commands, one after another.
type Shell struct {
	Commands  []string `json:"commands"`
	TimeoutMS *float64 `json:"timeout_ms"`        // of each
	MaxOutput *int64   `json:"max_output_length"` // characters of an answer
}

const maxCommands = 64

// rawCall is a call of any API.
type rawCall struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Arguments string          `json:"arguments"`
	Action    json.RawMessage `json:"action"`
	Function  struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// ReadCall reads a call. Errors are ErrInvalid, and ErrUnsupported for calls of a type
// that nothing here carries out.
func ReadCall(text []byte) (*Call, error) {
	// Two readers of it must read the same.
	if _, err := params.Read(text); err != nil {
		return nil, err
	}
	var r rawCall
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, invalidCall("it is not one of a model's", "hand over the item or block as the model's API gave it")
	}
	c := &Call{form: r.Type, ID: r.CallID, Name: r.Name, Args: json.RawMessage(r.Arguments)}
	switch r.Type {
	case "tool_use":
		c.ID, c.Args, c.Anthropic = r.ID, r.Input, true
	case "function_call":
	case "function":
		c.ID, c.Name, c.Args = r.ID, r.Function.Name, json.RawMessage(r.Function.Arguments)
	case "shell_call":
		c.Name, c.Args, c.Shell = "", nil, &Shell{}
		if err := DecodeCall(r.Action, c.Shell); err != nil {
			return nil, err
		}
		if n := len(c.Shell.Commands); n == 0 || n > maxCommands {
			return nil, invalidCall(fmt.Sprintf("its action has %d commands", n), fmt.Sprintf("1 to %d are carried out", maxCommands))
		}
	default:
		return nil, &sandbox.Error{Op: "call", Kind: sandbox.ErrUnsupported, Problem: "calls of the type " + clip(r.Type) + " are not carried out here",
			Hint: "known are tool_use, function_call, function and shell_call"}
	}
	if c.ID == "" || len(c.ID) > 256 {
		return nil, invalidCall("it has no ID, or a long one", "hand over the item or block as the model's API gave it")
	}
	if c.Shell == nil && c.Name == "" {
		return nil, invalidCall("it names no tool", "hand over the item or block as the model's API gave it")
	}
	return c, nil
}

// DecodeCall reads what is to be done into v. What v does not know is refused: it might
// have changed what is done.
func DecodeCall(text json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return invalidCall("its input is not one that is known here: "+clip(err.Error()), "")
	}
	return nil
}

func invalidCall(problem, hint string) error {
	return &sandbox.Error{Op: "call", Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
}

func clip(s string) string { return strconv.Quote(sandbox.Clip(s, 200)) }
