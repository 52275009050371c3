// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/caisson-run/caisson/policy"
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
