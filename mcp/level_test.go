// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/registry"
	"github.com/caisson-run/caisson/session/toolcall"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// level is a level whose program is a function of the test.
type level struct {
	prog func(ctx context.Context, in io.Reader, out, errs io.Writer) int
	// by has programs that are another, by the first word of their command.
	by map[string]func(ctx context.Context, in io.Reader, out, errs io.Writer) int

	mu   sync.Mutex
	ran  int
	live int
}

func (d *level) Name() string { return "gvisor" }

func (d *level) Probe(context.Context) (sandbox.Capabilities, error) {
	c := sandbox.Capabilities{Limits: map[sandbox.LimitName]sandbox.Clause{}, CopyOnWrite: true, ReadWrite: true, Masks: true}
	for _, n := range sandbox.LimitNames() {
		c.Limits[n] = sandbox.Clause{Enforcement: sandbox.Enforced}
	}
	return c, nil
}

func (d *level) Start(context.Context, *sandbox.Spec) (sandbox.Instance, error) {
	return nil, sandbox.ErrUnsupported
}

func (d *level) Adopt(context.Context, *sandbox.Spec) (*sandbox.Adopted, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "adopt sandbox", "it dies with its owner")
}

func (d *level) count(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live += n
	d.ran += max(n, 0)
}

func (d *level) starts() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ran
}

func (d *level) Run(ctx context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
	d.count(1)
	defer d.count(-1)
	if x.Started != nil {
		x.Started()
	}
	done := make(chan int, 1)
	out, errs := &gate{w: x.Stdout}, &gate{w: x.Stderr}
	defer out.shut()
	defer errs.shut()
	prog := d.prog
	if other := d.by[x.Argv[0]]; other != nil {
		prog = other
	}
	go func() { done <- prog(ctx, x.Stdin, out, errs) }()
	select {
	case code := <-done:
		r := &sandbox.Result{Status: sandbox.StatusSuccess, ExitCode: &code}
		if code != 0 {
			r.Status = sandbox.StatusError
		}
		return r, nil
	case <-ctx.Done():
		return &sandbox.Result{Status: sandbox.StatusError, Signal: "SIGKILL"}, nil
	}
}

// gate lets nothing through once it is shut: who has ended writes no more.
type gate struct {
	mu sync.Mutex
	w  io.Writer // nil once it is shut
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.w == nil {
		return 0, io.ErrClosedPipe
	}
	return g.w.Write(p)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.w = nil
}

// sdkServer is a program that is an ordinary server.
func sdkServer(fill func(*sdk.Server)) func(context.Context, io.Reader, io.Writer, io.Writer) int {
	return func(ctx context.Context, in io.Reader, out, _ io.Writer) int {
		s := sdk.NewServer(&sdk.Implementation{Name: "theirs", Version: "1"}, nil)
		fill(s)
		if err := s.Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(in), Writer: nopCloser{out}}); err != nil && ctx.Err() == nil {
			return 1
		}
		return 0
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// addTool adds a tool that takes any arguments.
func addTool(s *sdk.Server, name, description string, h sdk.ToolHandler) {
	s.AddTool(&sdk.Tool{Name: name, Description: description, InputSchema: map[string]any{"type": "object"}}, h)
}

func says(text string) sdk.ToolHandler {
	return func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil
	}
}

// bench is a gateway with one server and one client.
type bench struct {
	t       *testing.T
	level   *level
	dir     *store.Dir
	log     *audit.Log
	entry   string // of servers
	gateway *Gateway
	client  *sdk.ClientSession
	options sdk.ClientOptions
	version string // of the protocol that the client speaks; the newest when empty
	advice  string // of the server's operator
	// timeout is for servers that are silent at first; the usual one when zero.
	timeout time.Duration
	// unread is with servers that read nothing; the usual one when zero.
	unread time.Duration

	approvals *question.Approvals // nil: no person is asked
	rates     session.Rates

	mu      sync.Mutex
	notices []string
	more    string // of the policy file, beside servers
}

func newBench(t *testing.T, prog func(context.Context, io.Reader, io.Writer, io.Writer) int) *bench {
	t.Helper()
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), audit.Options{Dir: dir.Path()})
	if err != nil {
		t.Fatal(err)
	}
	rates, err := registry.Open(t.Context(), dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rates.Close(); log.Close(); dir.Close() })
	return &bench{t: t, rates: rates, level: &level{prog: prog}, dir: dir, log: log, entry: `{name: s, command: [server], tools: ["*"]}`}
}

func (b *bench) notice(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notices = append(b.notices, s)
}

func (b *bench) noticed(part string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.notices, func(s string) bool { return strings.Contains(s, part) })
}

// make makes the gateway of the entries.
func (b *bench) make(entries ...string) *Gateway {
	b.t.Helper()
	if len(entries) == 0 {
		entries = []string{b.entry}
	}
	f, err := policy.Parse("/p.yaml", []byte("version: 1\nservers:\n  - "+strings.Join(entries, "\n  - ")+"\n"+b.more))
	if err != nil {
		b.t.Fatal(err)
	}
	o := GatewayOptions{Pins: &Pins{Dir: filepath.Join(b.dir.Path(), "mcp")}, Actor: "me", Version: "v0", Notice: b.notice, Complaint: b.notice,
		Backoff: func(int) time.Duration { return time.Millisecond }}
	whole, err := policy.New(policy.Options{File: f, Defaults: persistent.LivingLimits()})
	if err != nil {
		b.t.Fatal(err)
	}
	judge, err := session.New(session.Options{Drivers: map[string]sandbox.Driver{"gvisor": b.level}, Policy: whole, Journal: b.log, State: session.DirState(b.dir), Approvals: b.approvals, Rates: b.rates})
	if err != nil {
		b.t.Fatal(err)
	}
	o.Judge = toolcall.Of(judge)
	for _, s := range f.Servers {
		p, err := policy.New(policy.Options{File: f.ServerFile(s), Defaults: persistent.LivingLimits()})
		if err != nil {
			b.t.Fatal(err)
		}
		ss, err := session.New(session.Options{Drivers: map[string]sandbox.Driver{"gvisor": b.level}, Policy: p, Journal: b.log, State: session.DirState(b.dir)})
		if err != nil {
			b.t.Fatal(err)
		}
		u := Upstream{Name: s.Name.V, Server: s, Place: f.Place, Session: ss, Advice: b.advice}
		u.Call.Argv, u.Call.Operator = []string{s.Command[0].V}, true
		o.Servers = append(o.Servers, u)
	}
	g, err := NewGateway(o)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, u := range g.upstreams {
		u.silence = cmp.Or(b.timeout, u.silence)
		u.unread = cmp.Or(b.unread, u.unread)
	}
	return g
}

// serve connects a client to the gateway; stop ends both.
func (b *bench) serve(entries ...string) (stop func()) {
	b.t.Helper()
	b.gateway = b.make(entries...)
	toGateway, fromGateway := io.Pipe()
	in, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.gateway.Serve(ctx, in, fromGateway) }()
	client := sdk.NewClient(&sdk.Implementation{Name: "ours", Version: "1"}, &b.options)
	var err error
	if b.client, err = client.Connect(b.t.Context(), &sdk.IOTransport{Reader: toGateway, Writer: out}, &sdk.ClientSessionOptions{ProtocolVersion: b.version}); err != nil {
		b.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		b.client.Close()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
		cancel()
		if b.level.live != 0 {
			b.t.Errorf("%d servers are left", b.level.live)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

// tools are the tools that the client sees, by name.
func (b *bench) tools() map[string]*sdk.Tool {
	b.t.Helper()
	out := map[string]*sdk.Tool{}
	for tool, err := range b.client.Tools(b.t.Context(), nil) {
		if err != nil {
			b.t.Fatal(err)
		}
		out[tool.Name] = tool
	}
	return out
}

// call calls a tool and returns its texts.
func (b *bench) call(name, args string) (text string, res *sdk.CallToolResult) {
	b.t.Helper()
	res, err := b.client.CallTool(b.t.Context(), &sdk.CallToolParams{Name: name, Arguments: rawJSON(args)})
	if err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
	for _, c := range res.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			text += c.Text
		}
	}
	return text, res
}

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// records are the status of each call of a tool that the record has, oldest first.
func (b *bench) records() (out []string) {
	b.t.Helper()
	for r, err := range b.log.Query(b.t.Context(), audit.Filter{Kind: "call_tool", OldestFirst: true}) {
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, string(r.Status))
	}
	return out
}

// until waits for a condition, which another goroutine is about to make true.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(2 * time.Minute); !ok(); {
		select {
		case <-tick.C:
		case <-late:
			b.t.Fatalf("%s: it never was; %q", what, b.notices)
		}
	}
}

func writeFile(name, text string) error { return os.WriteFile(name, []byte(text), 0o600) }
