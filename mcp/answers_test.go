// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 what is deprecated is what older servers and clients use

package mcp

import (
	"context"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/approval/approvaltest"
	"github.com/caisson-run/caisson/session/question"
)

// answering is a server that does what it is answered, whether it has asked or not.
func answering(heard func(sdk.InputResponseMap, string)) func(*sdk.Server) {
	return func(s *sdk.Server) {
		addTool(s, "send", "Sends.", func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			heard(req.Params.InputResponses, req.Params.RequestState)
			return &sdk.CallToolResult{Content: []sdk.Content{}}, nil
		})
		s.AddPrompt(&sdk.Prompt{Name: "p"}, func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			heard(req.Params.InputResponses, req.Params.RequestState)
			return &sdk.GetPromptResult{}, nil
		})
		s.AddResource(&sdk.Resource{URI: "file:///r", Name: "r"}, func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			heard(req.Params.InputResponses, req.Params.RequestState)
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{}}, nil
		})
	}
}

// A client answers no question that its server may not ask: that would be arguments
// that no schema, no rule and no approver looks at.
func TestAnswersToNoQuestion(t *testing.T) {
	yes := &sdk.ElicitResult{Action: "accept", Content: map[string]any{"to": "everybody"}}
	for _, c := range []struct {
		client  string
		answers sdk.InputResponseMap
		state   string
		passed  bool
	}{
		{"[]", sdk.InputResponseMap{"q": yes}, "", false},
		{"[]", nil, "s", false},
		{"[logging]", sdk.InputResponseMap{"q": yes}, "s", false},
		{"[roots]", sdk.InputResponseMap{"q": yes}, "s", false},
		{"[elicitation]", sdk.InputResponseMap{"q": yes, "r": &sdk.ListRootsResult{Roots: []*sdk.Root{}}}, "s", false},
		{"[elicitation]", sdk.InputResponseMap{"q": yes}, strings.Repeat("s", maxSample), false},
		{"[elicitation]", sdk.InputResponseMap{"q": yes}, "s", true},
		{"[elicitation]", nil, "s", true},
	} {
		n := 0
		b := newBench(t, sdkServer(answering(func(answers sdk.InputResponseMap, state string) {
			if len(answers) > 0 || state != "" {
				n++
			}
		})))
		stop := b.serve(`{name: s, command: [server], tools: ["*"], prompts: ["*"], resources: ["*"], client: ` + c.client + `}`)
		res, err := b.client.CallTool(t.Context(), &sdk.CallToolParams{Name: "send", InputResponses: c.answers, RequestState: c.state})
		_, perr := b.client.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "p", InputResponses: c.answers, RequestState: c.state})
		_, rerr := b.client.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "file:///r", InputResponses: c.answers, RequestState: c.state})
		stop()
		want := 0
		if c.passed {
			want = 3
		}
		if err != nil || n != want || res.IsError == c.passed || (perr == nil) != c.passed || (rerr == nil) != c.passed {
			t.Errorf("%s, %d answers: %d of them came through: %v, %v, %v, %v", c.client, len(c.answers), n, res, err, perr, rerr)
		}
	}
}

// What a client answers a server is part of the call: an approver sees it, a yes is
// for that, and the record has it.
func TestAnswersAreAskedAbout(t *testing.T) {
	b := newBench(t, sdkServer(answering(func(sdk.InputResponseMap, string) {})))
	b.more = "\ntools:\n  - {name: send, params: {type: object}, approve: always}\napprovals: {channels: [cli]}\n"
	b.approvals = question.New(question.Options{Dir: b.dir.Path(), Journal: b.log})
	defer b.approvals.Close()
	store := approvaltest.Store(t, b.approvals)
	who := approvaltest.Ada(t, store, approval.CLI)
	b.serve(`{name: s, command: [server], tools: ["*"], client: [elicitation]}`)
	digests := map[string]bool{}
	for _, to := range []string{"ada", "everybody"} {
		answer := make(chan error, 1)
		go func() {
			_, err := b.client.CallTool(t.Context(), &sdk.CallToolParams{Name: "send", RequestState: "s",
				InputResponses: sdk.InputResponseMap{"q": &sdk.ElicitResult{Action: "accept", Content: map[string]any{"to": to}}}})
			answer <- err
		}()
		var asked []*approval.Request
		b.until("it is asked", func() bool {
			var err error
			asked, err = store.List(t.Context(), approval.Pending)
			return err == nil && len(asked) == 1
		})
		if view := asked[0].View.String(); !strings.Contains(view, `"to":"`+to) {
			t.Errorf("what the approver sees does not have it:\n%s", view)
		}
		digests[asked[0].Digest] = true
		if _, err := b.approvals.Answer(t.Context(), who, asked[0].ID, question.Answer{Yes: true, Digest: asked[0].Seal()}); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; err != nil {
			t.Error(err)
		}
	}
	if len(digests) != 2 {
		t.Error("a yes to one is a yes to the other")
	}
	if records := b.kinds("call_tool"); len(records) != 2 || !strings.Contains(records[1], `"to":"everybody"`) {
		t.Errorf("%q", records)
	}
}
