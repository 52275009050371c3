// SPDX-License-Identifier: Apache-2.0

package tool

import "encoding/base64"

// Answer is what came of a call of a tool.
type Answer struct {
	Text   string
	Failed bool
	// Pictures are what it shows.
	Pictures []Picture
}

// Picture is a picture, and its media type.
type Picture struct {
	Data []byte
	Kind string
}

type resultText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type resultPicture struct {
	Type   string       `json:"type"`
	Source resultSource `json:"source"`
}

type resultSource struct {
	Type string `json:"type"`
	Kind string `json:"media_type"`
	Data string `json:"data"`
}

// Result is the answer as the call's API takes it.
func (c *Call) Result(a Answer) any {
	switch c.form {
	case "tool_use":
		content := []any{resultText{"text", a.Text}}
		if a.Text == "" {
			content = []any{} // an empty text is refused there
		}
		for _, p := range a.Pictures {
			content = append(content, resultPicture{"image", resultSource{"base64", p.Kind, base64.StdEncoding.EncodeToString(p.Data)}})
		}
		return struct {
			Type    string `json:"type"`
			ID      string `json:"tool_use_id"`
			Content []any  `json:"content"`
			Failed  bool   `json:"is_error,omitempty"`
		}{"tool_result", c.ID, content, a.Failed}
	case "function":
		return struct {
			Role    string `json:"role"`
			ID      string `json:"tool_call_id"`
			Content string `json:"content"`
		}{"tool", c.ID, a.Text}
	case "shell_call":
		return c.ShellResult([]Ended{{Stderr: a.Text, ExitCode: 1}})
	}
	return struct {
		Type   string `json:"type"`
		ID     string `json:"call_id"`
		Output string `json:"output"`
	}{"function_call_output", c.ID, a.Text}
}

// Ended is how one command of a shell call ended.
type Ended struct {
	Stdout, Stderr string
	ExitCode       int
	Timeout        bool
}

type shellOutcome struct {
	Type     string `json:"type"`
	ExitCode *int   `json:"exit_code,omitempty"`
}

type shellOutput struct {
	Stdout  string       `json:"stdout"`
	Stderr  string       `json:"stderr"`
	Outcome shellOutcome `json:"outcome"`
}

// ShellResult is the answer to a shell call, cut to as many characters as the call
// wants, of all its streams in turn.
func (c *Call) ShellResult(list []Ended) any {
	left := int64(-1)
	if c.Shell != nil && c.Shell.MaxOutput != nil {
		left = max(*c.Shell.MaxOutput, 0)
	}
	cut := func(s string) string {
		if left < 0 {
			return s
		}
		for i := range s {
			if left == 0 {
				return s[:i]
			}
			left--
		}
		return s
	}
	out := []shellOutput{}
	for _, e := range list {
		o := shellOutput{Stdout: cut(e.Stdout), Stderr: cut(e.Stderr), Outcome: shellOutcome{Type: "timeout"}}
		if !e.Timeout {
			code := e.ExitCode
			o.Outcome = shellOutcome{"exit", &code}
		}
		out = append(out, o)
	}
	v := struct {
		Type   string        `json:"type"`
		ID     string        `json:"call_id"`
		Max    *int64        `json:"max_output_length,omitempty"`
		Output []shellOutput `json:"output"`
	}{Type: "shell_call_output", ID: c.ID, Output: out}
	if c.Shell != nil {
		v.Max = c.Shell.MaxOutput
	}
	return v
}
