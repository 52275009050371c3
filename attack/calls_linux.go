// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// arguments are those of a tool: names and values by turns.
func arguments(pairs ...string) string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	text, _ := json.Marshal(m)
	return string(text)
}

// marker declares a tool that makes a file whose name fits a pattern, with more
// in its entry.
func marker(pattern, more string) string {
	return `tools:
  - name: mark
    description: Makes a file.
    params: {type: object, additionalProperties: false, required: [name], properties: {name: {type: string, pattern: "` + pattern + `"}, n: {type: integer, minimum: 0, maximum: 9}}}
    command: [touch, --, "{name}"]
` + more
}

// oddArguments are those that some reader takes for others than the tool's schema
// allows, or that take their time.
func oddArguments() []string {
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	all := []string{
		`{"name":"ok-evil","name":"evil"}`, `{"name":"evil","name":"ok-evil"}`, `{"name":"ok-evil","\u006eame":"evil"}`, `{"NAME":"ok-evil"}`, `{"name":"ok-evil","Name":"evil"}`,
		`{"name":"ok-evil"}{"name":"evil"}`, `{"name":"ok-evil"},`, "\ufeff" + `{"name":"ok-evil"}`, `{"name":"ok-evil"/**/}`, `{'name':'ok-evil'}`, `["ok-evil"]`, `"ok-evil"`, `{}`, `null`, `{"name":null}`,
	}
	for _, value := range []string{
		`"ok-evil\n"`, `"ok-evil\u0000"`, `"ok-\u200devil"`, `"ok-ev\u0456l"`, `"\uff4fk-evil"`, `"ok-evil\ud800"`, `"../evil"`, `"/tmp/evil"`, `"-evil"`, `"ok-"`, `["ok-evil"]`, `{"ok-evil":1}`, `1`,
		`"ok-` + strings.Repeat("a", 2<<20) + `"`,
	} {
		all = append(all, `{"name":`+value+`}`)
	}
	for _, more := range []string{
		`"n":10`, `"n":-1`, `"n":1.5`, `"n":"1"`, `"n":1e400`, `"n":-1e400`, `"n":NaN`, `"n":Infinity`, `"n":9007199254740993`, `"n":1e-400`, `"n":` + strings.Repeat("9", 10_000), `"n":` + deep, `"n":[` + deep,
		`"more":1`, `"privileged":true`, `"__proto__":{"n":1}`, `"constructor":{}`, `"n\u0000":1`, `"n\u200d":1`, `"\uff4e":1`, `"":1`,
	} {
		all = append(all, `{"name":"ok-evil",`+more+`}`)
	}
	return all
}

// arguments goes at how arguments of tools are read.
func (s *suite) arguments(ctx context.Context) finding {
	d, err := s.desk(ctx, "P07", marker("^ok-[a-z]{1,20}$", ""))
	if err != nil {
		return unable(err)
	}
	defer func() { d.Close() }()
	if f := d.works("ok-control", d.tool(ctx, "mark", `{"name":"ok-control"}`)); f.verdict != Pass {
		return f
	}
	for _, text := range oddArguments() {
		began := time.Now()
		_ = d.tool(ctx, "mark", text)
		if _, n := d.any(""); n != 1 { // the control's
			return breach("arguments that do not fit were taken: %s", shorten(text))
		}
		if took := time.Since(began); took > within {
			return breach("it took %s to refuse %s", took.Round(time.Second), shorten(text))
		}
	}
	return d.schemas(ctx)
}

// schemas has the Office read schemas that lead elsewhere, or round.
func (d *desk) schemas(ctx context.Context) finding {
	e, err := listen("127.0.0.1")
	if err != nil {
		return unable(err)
	}
	defer e.close()
	for _, schema := range []string{
		`{$ref: "http://` + e.at("127.0.0.1") + `/schema.json"}`, `{$schema: "http://` + e.at("127.0.0.1") + `/schema.json"}`, `{$ref: "file:///etc/passwd"}`,
		`{$ref: "#"}`, `{$ref: "#/$defs/a", $defs: {a: {$ref: "#/$defs/b"}, b: {$ref: "#/$defs/a"}}}`, `{type: object, patternProperties: {"(a+)+$": {pattern: "((((a+)+)+)+)$"}}}`,
	} {
		began := time.Now()
		if d.reopen(ctx, "tools: [{name: mark, params: "+schema+", command: [touch, evil]}]\n") == nil {
			_ = d.tool(ctx, "mark", `{"name":"`+strings.Repeat("a", 60_000)+`!"}`)
		}
		switch {
		case e.count() > 0:
			return breach("a schema had an address asked: %s", schema)
		case time.Since(began) > within:
			return breach("it took %s: %s", time.Since(began).Round(time.Second), schema)
		}
	}
	return pass()
}

// fields asks for what only the owner of this host may, in somebody else's name,
// and by fields that other programs know.
func (s *suite) fields(ctx context.Context) finding {
	d, err := s.desk(ctx, "P09", "tools: [run_command, run_code]\n")
	if err != nil {
		return unable(err)
	}
	defer d.Close()
	if f := d.works("control", d.tool(ctx, "run_command", arguments("command", "touch control"))); f.verdict != Pass {
		return f
	}
	e, err := listen("127.0.0.1")
	if err != nil {
		return unable(err)
	}
	defer e.close()
	file, dest := filepath.Join(s.out, "P09"), filepath.Join(s.dir, "P09", "collected")
	mount := func(target string) policy.MountWish { return policy.MountWish{Source: s.out, Target: target} }
	for what, change := range map[string]func(*session.Call){
		"a mount":                func(c *session.Call) { c.Mounts = []policy.MountWish{mount("/x")} },
		"a mount, dangerous":     func(c *session.Call) { c.Mounts, c.AllowDangerousMounts = []policy.MountWish{mount("/x")}, true },
		"a workspace":            func(c *session.Call) { w := mount(""); c.Workspace = &w },
		"a toolchain":            func(c *session.Call) { c.Toolchains = []string{s.out} },
		"a root":                 func(c *session.Call) { c.Rootfs = "/" },
		"a root, overriding":     func(c *session.Call) { c.Rootfs, c.Override = "/", true },
		"an image of the host's": func(c *session.Call) { c.Image = "oci:" + s.out },
		"a file of the host's":   func(c *session.Call) { c.Argv, c.File, c.FileLanguage = nil, file, "bash" },
		"a secret of a file's": func(c *session.Call) {
			c.Secrets = []policy.Secret{{Name: "KEY", From: "file:" + file, Hosts: []string{localhost}}}
		},
		"files taken out": func(c *session.Call) { c.Collect = []policy.CollectWish{{Pattern: "*", Dest: dest}} },
		"a network":       func(c *session.Call) { c.Network = []string{e.at("127.0.0.1")} },
	} {
		c := &session.Call{Door: "attack", Call: policy.Call{Actor: who}}
		c.Argv = []string{"sh", "-c", fmt.Sprintf("cat P09 /x/P09 %[1]s; env; exec bash -c 'echo > /dev/tcp/127.0.0.1/%[2]d'", file, e.port)}
		change(c)
		var out bounded
		_, _ = d.Do(ctx, c, session.IO{Stdout: &out, Stderr: &out})
		if bytes.Contains(out.bytes(), []byte(s.token("P09"))) || e.count() > 0 || exists(dest) {
			return breach("somebody who is not the owner of this host was given %s", what)
		}
	}
	for i, field := range []string{
		`"owner":true`, `"operator":true`, `"approved":true`, `"unsandboxed":true`, `"dangerouslyDisableSandbox":true`, `"isolation":"none"`, `"network":"container:x"`, `"network_mode":"host"`, `"privileged":true`, `"pid":"host"`, `"ipc":"host"`,
		`"user":"root"`, `"mounts":[{"source":"/","target":"/host"}]`, `"Mounts":[{"Type":"bind","Source":"/","Target":"/host"}]`, `"Binds":["/:/host"]`, `"volumes":["/:/host"]`, `"devices":["/dev/mem"]`, `"ulimit":["nofile=1048576"]`,
		`"cap_add":["ALL"]`, `"security_opt":["seccomp=unconfined"]`, `"use_api_socket":true`, `"rootfs":"/"`, `"image":"oci:/"`, `"workspace":"/"`, `"override":true`, `"best_effort":true`, `"approval":"yes"`, `"policy":"version: 1"`,
	} {
		canary := canaryOf("P09", i)
		if _ = d.tool(ctx, "run_command", `{"command":"touch `+canary+`",`+field+`}`); d.made(canary) {
			return breach("a call with a field that means nothing here ran: %s", field)
		}
	}
	return pass()
}

// rates calls a tool more often than it may be called: all at once, through two
// Offices that share what they count, and through a third that comes later.
func (s *suite) rates(ctx context.Context) finding {
	const most, burst = 3, 12
	entry := marker("^P11-[0-9]+$", fmt.Sprintf("    rate: %d/day\n", most))
	first, err := s.desk(ctx, "P11", entry)
	if err != nil {
		return unable(err)
	}
	defer func() { first.Close() }()
	second, err := s.Open(ctx, OfficeOptions{Dir: first.state, Policy: first.policy})
	if err != nil {
		return unable(err)
	}
	errs := make([]error, 2*burst)
	var all sync.WaitGroup
	for i := range errs {
		caller := []*Office{first.Office, second}[i%2]
		all.Go(func() {
			call := &session.ToolCall{Name: "mark", Args: []byte(arguments("name", fmt.Sprintf("P11-%d", i))), Actor: who, Door: fmt.Sprintf("attack-%d", i), Approval: fmt.Sprintf("token-%d", i)}
			_, errs[i] = caller.CallTool(ctx, call)
		})
	}
	all.Wait()
	err = errors.Join(second.Close(), first.reopen(ctx, entry))
	if err != nil {
		return unable(err)
	}
	for i := range burst {
		_ = first.tool(ctx, "mark", arguments("name", fmt.Sprintf("P11-%d", 100+i)))
	}
	switch _, n := first.any("P11-"); {
	case n > most:
		return breach("it ran %d times where %d are allowed in a day", n, most)
	case n < most:
		if i := firstOf(errs); i >= 0 && !errors.Is(errs[i], sandbox.ErrDenied) {
			return unable(errs[i])
		}
		return finding{verdict: Unclear, reason: fmt.Sprintf("it ran %d times where %d are allowed", n, most)}
	}
	return pass()
}

// firstOf is the index of the first error that is no refusal, of any other where
// all are.
func firstOf(errs []error) int {
	at := -1
	for i, err := range errs {
		if err != nil && (at < 0 || !errors.Is(err, sandbox.ErrDenied)) {
			at = i
		}
	}
	return at
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	mu   sync.Mutex
	kept []byte
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = append(b.kept, p[:min(len(p), mostHeard-min(mostHeard, len(b.kept)))]...)
	return len(p), nil
}

func (b *bounded) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.kept)
}
