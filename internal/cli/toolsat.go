// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"

	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/toolcall"
)

// callToolAt has a daemon call a tool, under the policy of a key, and shows what came
// of it as callTool does.
func (a *app) callToolAt(ctx context.Context, d *daemon, name string, arguments []byte) error {
	c, err := d.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := c.CallTool(ctx, client.ToolCall{Name: name, Arguments: arguments})
	if err != nil {
		return err
	}
	res := programResult(answer.Output)
	switch {
	case res != nil:
		a.code = exitCode(res)
	case answer.Failed:
		a.code = exitFault
	}
	if d.json {
		a.printJSON(answer.Output)
		return nil
	}
	stdout, finish := a.output(a.out.file, &runFlags{})
	defer finish()
	if res == nil {
		if n, ok := answer.Output["status"].(float64); ok { // of a request
			answer.Output["status"] = int(n)
		}
		text, _ := (&toolcall.Answer{Output: answer.Output}).Shown()
		_, err := fmt.Fprintln(stdout, text)
		a.out.note(err)
		return nil
	}
	stderr, finishErr := a.output(a.err, &runFlags{})
	defer finishErr()
	for name, to := range map[string]io.Writer{"stdout": stdout, "stderr": stderr} {
		text, _ := answer.Output[name].(string)
		if answer.Output[name+"_encoding"] == "base64" {
			b, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return &sandbox.Error{Op: "daemon", Kind: sandbox.ErrUnavailable, Problem: "its answer cannot be read", Cause: err}
			}
			text = string(b)
		}
		if _, err := io.WriteString(to, text); err != nil {
			return err
		}
	}
	a.show(&runFlags{}, res, nil)
	return nil
}

// programResult is what came of a program; nil where the tool ran none.
func programResult(out map[string]any) *sandbox.Result {
	status, ok := out["status"].(string)
	if !ok {
		return nil
	}
	text := func(key string) string { s, _ := out[key].(string); return s }
	r := &sandbox.Result{Status: sandbox.Status(status), Signal: text("signal"), Reason: text("reason"), Rule: text("rule"), Hint: text("hint"), Resource: sandbox.LimitName(text("resource"))}
	if n, ok := out["exit_code"].(float64); ok {
		code := int(n)
		r.ExitCode = &code
	}
	return r
}
