// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 what is deprecated is what older servers and clients use

package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/toolcall"
	"github.com/caisson-run/caisson/tool"
)

// Toolbox is what a server offers: tools, and the road that carries them out.
type Toolbox interface {
	Tools() ([]*tool.Tool, error)
	CallTool(ctx context.Context, c *toolcall.Call) (*toolcall.Answer, error)
	// RefuseTool records a call of a tool that is not among Tools.
	RefuseTool(ctx context.Context, c *toolcall.Call) error
}

// KeyTools are the tools of a key.
func KeyTools(b *persistent.Sandboxes, k *persistent.Key) Toolbox { return keyTools{b, k} }

type keyTools struct {
	b *persistent.Sandboxes
	k *persistent.Key
}

func (t keyTools) Tools() ([]*tool.Tool, error) { return t.b.Tools(t.k) }

func (t keyTools) CallTool(ctx context.Context, c *toolcall.Call) (*toolcall.Answer, error) {
	return t.b.CallTool(ctx, t.k, c)
}

func (t keyTools) RefuseTool(ctx context.Context, c *toolcall.Call) error {
	return t.b.RefuseTool(ctx, t.k, c)
}

// instructions are what clients may tell their model about all of it.
const instructions = "Code and commands run in isolated Linux sandboxes, never on the user's machine. " +
	"run_code and run_command without sandbox_id use a fresh sandbox each time, of which nothing is left. " +
	"To keep files and processes from call to call, make one with create_sandbox and pass its sandbox_id; with a context, run_code keeps variables and imports, too. " +
	"What is changed in a workspace reaches the user's own files only by keep_changes, show_changes and apply_changes. " +
	"A refusal names the rule and what would be allowed; asking again in other words changes nothing."

// callsAtOnce is how many calls of one caller are under way at once.
const callsAtOnce = 32

// NewServer makes the server of one caller's tools. It keeps nothing between calls:
// a persistent sandbox is named by an argument.
func NewServer(box Toolbox, version string) (*sdk.Server, error) {
	return newServer(&serving{box: box, timeout: askTimeout, bound: elicitBound}, version)
}

func newServer(own *serving, version string) (*sdk.Server, error) {
	return makeServer(own, sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}}, version)
}

// makeServer makes the server of a toolbox, which has no more than o's capabilities.
func makeServer(own *serving, o sdk.ServerOptions, version string) (*sdk.Server, error) {
	own.waits = map[[sha256.Size]byte]waiting{}
	tools, err := own.box.Tools()
	if err != nil {
		return nil, err
	}
	o.Instructions, o.Logger = instructions, slog.New(slog.DiscardHandler)
	s := sdk.NewServer(&sdk.Implementation{Name: "caisson", Title: "caisson", Version: version}, &o)
	known := map[string]bool{}
	for _, t := range tools {
		known[t.Name] = true
	}
	// The library answers some of what a server has not with empty lists, without saying
	// beforehand that it would.
	s.AddReceivingMiddleware(only(o.Capabilities), recordUnknown(func(name string) bool { return known[name] }, func(ctx context.Context, name string) error {
		return own.box.RefuseTool(ctx, &toolcall.Call{Name: name, Frontend: "mcp"})
	}))
	slots := make(chan struct{}, callsAtOnce)
	for _, t := range tools {
		def := &sdk.Tool{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.Params,
			Annotations: &sdk.ToolAnnotations{Title: t.Title, ReadOnlyHint: t.ReadOnly, DestructiveHint: &t.Destructive, IdempotentHint: t.Idempotent, OpenWorldHint: &t.OpenWorld}}
		if len(t.Output) > 0 {
			def.OutputSchema = t.Output
		}
		s.AddTool(def, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
				return own.call(ctx, t.Name, req), nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
	}
	return s, nil
}

// only refuses what is beside tools and is not among capabilities.
func only(can *sdk.ServerCapabilities) sdk.Middleware {
	has := map[string]bool{"prompts/": can.Prompts != nil, "resources/": can.Resources != nil, "completion/": can.Completions != nil, "logging/": can.Logging != nil}
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			for prefix, ok := range has {
				if !ok && strings.HasPrefix(method, prefix) {
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + method}
				}
			}
			return next(ctx, method, req)
		}
	}
}

// recordUnknown has calls recorded that the library answers by itself, since no tool
// has their name.
func recordUnknown(known func(name string) bool, record func(ctx context.Context, name string) error) sdk.Middleware {
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if call, ok := req.(*sdk.CallToolRequest); ok && !known(call.Params.Name) {
				if err := record(ctx, line(call.Params.Name, 128)); err != nil {
					return nil, err
				}
			}
			return next(ctx, method, req)
		}
	}
}

// call carries a call out. When ctx ends, what it runs is killed.
func (s *serving) call(ctx context.Context, name string, req *sdk.CallToolRequest) *sdk.CallToolResult {
	c := &toolcall.Call{Name: name, Args: req.Params.Arguments, Frontend: "mcp"}
	if token := req.Params.GetProgressToken(); token != nil {
		p := &pulse{}
		c.Stdout, c.Stderr = p, p
		defer p.beat(ctx, req.Session, token)()
	}
	answer, other, err := s.carry(ctx, req, c)
	switch {
	case err != nil:
		return refusal(err).result()
	case other != nil:
		return other
	}
	text, pictures := answer.Shown()
	res := &sdk.CallToolResult{StructuredContent: answer.Output, IsError: answer.Failed, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
	for _, p := range pictures {
		res.Content = append(res.Content, &sdk.ImageContent{Data: p.Data, MIMEType: p.Kind})
	}
	return res
}

// refusal is an error of the road as a model gets it.
func refusal(err error) *verdict {
	v := &verdict{Status: "unavailable", Reason: line(err.Error(), 4000)}
	var e *sandbox.Error
	if errors.As(err, &e) {
		v.Rule, v.Hint = e.Rule, e.Hint
	}
	for kind, status := range map[error]string{sandbox.ErrDenied: "denied", sandbox.ErrInvalid: "invalid", sandbox.ErrNotFound: "not_found",
		sandbox.ErrUnsupported: "unsupported", sandbox.ErrConflict: "conflict", sandbox.ErrExhausted: "exhausted"} {
		if errors.Is(err, kind) {
			v.Status = status
		}
	}
	return v
}

// pulse tells of a program that runs: once a second how long it has, and the last
// line that it wrote.
type pulse struct {
	mu   sync.Mutex
	last []byte
}

const (
	maxPulse   = 256 // bytes of a line
	pulseEvery = time.Second
)

func (p *pulse) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	tail := bytes.TrimRight(b, "\r\n")
	if i := bytes.LastIndexByte(tail, '\n'); i >= 0 {
		tail = tail[i+1:]
	}
	if len(tail) > 0 {
		p.last = append(p.last[:0], tail[:min(len(tail), maxPulse)]...)
	}
	return len(b), nil
}

func (p *pulse) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return line(string(p.last), maxPulse)
}

// beat begins to tell, until stop.
func (p *pulse) beat(ctx context.Context, to *sdk.ServerSession, token any) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var over sync.WaitGroup
	over.Go(func() {
		began, tick := time.Now(), time.NewTicker(pulseEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			_ = to.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: time.Since(began).Seconds(), Message: p.line()})
		}
	})
	return func() { cancel(); over.Wait() }
}
