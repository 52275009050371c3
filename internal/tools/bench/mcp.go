// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	api "github.com/caisson-run/caisson/client"
)

// mcpRows say what the Model Context Protocol costs: as a frontend of a daemon, beside the
// Go client of the same daemon; and as a gateway, beside the same server without one.
func (s *stage) mcpRows() []bench {
	return []bench{
		{"what MCP's run_command takes beyond package client, in a running sandbox", s.mcpBeyond(true)},
		{"what MCP's run_command takes beyond package client, in a fresh one", s.mcpBeyond(false)},
		{"what the gateway adds to a call of a server, on gVisor", s.gatewayAdds("gvisor")},
		{"what the gateway adds to a call of a server, on the process level", s.gatewayAdds("process")},
	}
}

// added is a row of what one side takes beyond the other: the median of the differences
// of each pair.
func added(p *pairs, goal, us, them string) row {
	r := row{goal: goal, theirs: "none", runs: strconv.Itoa(len(p.ours))}
	if p.first != nil {
		r.notes = append(r.notes, fmt.Sprintf("%d of %d runs failed, the first with: %v", p.failed[0]+p.failed[1], p.failed[0]+p.failed[1]+2*len(p.ours), p.first))
	}
	if len(p.ours) == 0 {
		return r
	}
	var beyond []time.Duration
	for i := range p.ours {
		beyond = append(beyond, p.ours[i].wall-p.theirs[i].wall)
	}
	slices.Sort(beyond)
	r.ours = fmt.Sprintf("%+.2f ms", float64(median(beyond))/1e6)
	r.notes = append(r.notes, fmt.Sprintf("%.2f ms %s, %.2f ms %s; the median of the differences", float64(median(walls(p.ours)))/1e6, us, float64(median(walls(p.theirs)))/1e6, them))
	return r
}

// wall is how long do takes.
func wall(do func(context.Context) error) once {
	return func(ctx context.Context) (took, error) {
		began := time.Now()
		err := do(ctx)
		return took{wall: time.Since(began)}, err
	}
}

// mcpBeyond runs the same program by both frontends of one daemon.
func (s *stage) mcpBeyond(living bool) func(context.Context) row {
	return func(ctx context.Context) row {
		u := s.users[0]
		r, err := s.frontends(ctx, u, living)
		if err != nil {
			r = row{notes: []string{err.Error()}}
		}
		r.who = u.name
		return r
	}
}

func (s *stage) frontends(ctx context.Context, u user, living bool) (_ row, err error) {
	d, err := s.daemon(ctx, u, serving{})
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: d.url + "/mcp", HTTPClient: &http.Client{Transport: withKey{d.key}}, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return row{}, err
	}
	defer cs.Close()
	args := map[string]any{"command": echo[0], "args": echo[1:]}
	byClient := func(ctx context.Context) error {
		return succeeded(d.Run(ctx, api.Run{Exec: api.Exec{Command: echo}}))
	}
	if living {
		b, err := d.Create(ctx, api.Create{})
		if err != nil {
			return row{}, err
		}
		args["sandbox_id"] = b.ID
		byClient = func(ctx context.Context) error { return succeeded(d.Exec(ctx, b.ID, api.Exec{Command: echo})) }
	}
	p := interleave(ctx, 5*s.o.pairs, wall(func(ctx context.Context) error { return callTool(ctx, cs, "run_command", args) }), wall(byClient))
	return added(p, "≤ 3 ms", "by MCP", "by the client"), nil
}

func succeeded(r *api.Result, err error) error {
	if err == nil && r.Status != "success" {
		err = fmt.Errorf("%s: %s %s", r.Status, r.Reason, r.Stderr)
	}
	return err
}

type withKey struct{ key string }

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return http.DefaultTransport.RoundTrip(r)
}

func callTool(ctx context.Context, cs *sdk.ClientSession, name string, args any) error {
	res, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
	if err == nil && res.IsError {
		text, _ := json.Marshal(res.Content)
		err = fmt.Errorf("%s: %s", name, text)
	}
	return err
}

// serverArg makes this program an MCP server of one tool.
const serverArg = "serve-mcp"

type said struct {
	Text string `json:"text"`
}

func serveEcho(ctx context.Context) error {
	server := sdk.NewServer(&sdk.Implementation{Name: "echo", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "echo", Description: "Says it again."}, func(_ context.Context, _ *sdk.CallToolRequest, in said) (*sdk.CallToolResult, said, error) {
		return nil, in, nil
	})
	return server.Run(ctx, &sdk.StdioTransport{})
}

// gatewayAdds calls the same server as a child, and behind a gateway, in a sandbox.
func (s *stage) gatewayAdds(level string) func(context.Context) row {
	return func(ctx context.Context) row {
		u := s.users[0]
		r, err := s.gatewayCalls(ctx, u, level)
		if err != nil {
			r = row{notes: []string{err.Error()}}
		}
		r.who = u.name
		return r
	}
}

func (s *stage) gatewayCalls(ctx context.Context, u user, level string) (_ row, err error) {
	self, err := os.Executable()
	if err != nil {
		return row{}, err
	}
	var sessions [2]*sdk.ClientSession
	for i, cmd := range []*exec.Cmd{
		s.caisson(ctx, u, "mcp", "gateway", "--isolation", level, "--tool", "*", "--mount", self+":/srv/echo", "--", "/srv/echo", serverArg),
		exec.CommandContext(ctx, self, serverArg),
	} {
		cs, err := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, &sdk.CommandTransport{Command: cmd}, nil)
		if err != nil {
			return row{}, err
		}
		defer func() { err = errors.Join(err, cs.Close()) }()
		sessions[i] = cs
	}
	call := func(i int) once {
		return wall(func(ctx context.Context) error { return callTool(ctx, sessions[i], "echo", said{"ahoy"}) })
	}
	return added(interleave(ctx, 10*s.o.pairs, call(0), call(1)), "≤ 2 ms", "behind it", "without"), nil
}
