// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/session"
)

// daemon is a second caisson that serves, with a state of its own.
type daemon struct {
	url, key string
	port     string
	state    string // its state directory
	cmd      *exec.Cmd
	ended    chan struct{}
	suite    *suite
}

// packTimeout is how long a request may take where this host's programs are packed for a root.
const packTimeout = 5 * probeTimeout

// timeout is how long a request may take.
func (d *daemon) timeout() time.Duration {
	if d.suite.Copies {
		return packTimeout
	}
	return probeTimeout
}

// ownState makes a directory with a state directory for another caisson.
func (s *suite) ownState() (dir, state string, err error) {
	if dir, err = os.MkdirTemp(s.dir, "daemon-"); err != nil {
		return "", "", err
	}
	state = filepath.Join(dir, "state")
	if err = os.Mkdir(state, 0o700); err == nil && s.Lend != nil {
		err = s.Lend(s.State, state)
	}
	return dir, state, err
}

// serve starts one whose keys have a policy.
func (s *suite) serve(ctx context.Context, policy string, more ...string) (*daemon, error) {
	dir, state, err := s.ownState()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--state", state, "--policy", file, "--pool", "0", "--grace", "0s"}, more...)
	d := &daemon{cmd: s.Again(args...), state: state, ended: make(chan struct{}), suite: s}
	var errs tail
	d.cmd.Stderr = &errs
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(probeTimeout, func() { _ = d.cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(out)
	for shown := false; !shown && lines.Scan(); {
		if _, at, ok := strings.Cut(lines.Text(), " serves sandboxes at "); ok {
			d.url = at
		}
		_, _, shown = strings.Cut(lines.Text(), "E2B_API_KEY=")
	}
	d.key = firstKey(state)
	go func() {
		_, _ = io.Copy(io.Discard, out)
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	u, err := url.Parse(d.url)
	if err != nil || d.key == "" {
		d.stop()
		return nil, fmt.Errorf("the second caisson does not serve: %s", errs.text())
	}
	d.port = u.Port()
	return d, ctx.Err()
}

// firstKey is the key that a daemon has made whose output is no terminal; empty without.
func firstKey(state string) string {
	key, err := os.ReadFile(filepath.Join(state, "first-key"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(key))
}

// stop ends it, with its sandboxes.
func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(probeTimeout / 3):
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
}

// client follows nothing and keeps nothing.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// ask makes a request with the key of the daemon's owner.
func (d *daemon) ask(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader = http.NoBody
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", d.key)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, res.Status, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// create makes a sandbox of the daemon's, with words that are its own.
func (d *daemon) create(ctx context.Context, words map[string]string) (id string, err error) {
	var made struct {
		ID string `json:"id"`
	}
	err = d.ask(ctx, "POST", "/v1/sandboxes", map[string]any{"timeout": probeTimeout.Seconds(), "metadata": words, "env": words}, &made)
	return made.ID, err
}

// control goes at a daemon without a key: as a page in a browser of the
// daemon's own user, and as code in a sandbox that was given a way to it.
func (s *suite) control(ctx context.Context) finding {
	if f := s.neighbours(ctx); f.verdict != Pass {
		return f
	}
	if s.Again == nil {
		return finding{verdict: NotApplicable, reason: "this program does not start a second caisson"}
	}
	d, err := s.serve(ctx, "version: 1\nisolation: "+s.Isolation+"\nenv: {pass: [canary]}\n")
	if err != nil {
		return unable(err)
	}
	defer d.stop()
	canary := s.token("N16")
	id, err := d.create(ctx, map[string]string{"canary": canary})
	if err != nil {
		return unable(err)
	}
	for _, r := range visitors(d, id) {
		why, err := r.heard(d, canary)
		if err != nil {
			return unable(err)
		}
		if why != "" {
			return breach("%s", why)
		}
	}
	return s.controlFromInside(ctx, d, id)
}

// controlFromInside has a sandbox that was given a way to the daemon go at it.
func (s *suite) controlFromInside(ctx context.Context, d *daemon, id string) finding {
	plan := probe.Knocks{Case: "N16", Resolver: resolver}
	for _, host := range []string{localhost, "127.0.0.1"} {
		to := net.JoinHostPort(host, d.port)
		for _, r := range visitors(d, id) {
			if r.what == guessing || r.what == keyless {
				plan.List = append(plan.List, probe.Knock{What: r.what + ": " + r.method + " " + r.path + " at " + host, To: to, Bytes: r.text(to)})
			}
		}
	}
	text, _ := json.Marshal(plan)
	sc := s.begin(ctx, func(c *session.Call) {
		c.Network = []string{net.JoinHostPort(localhost, d.port), net.JoinHostPort("127.0.0.1", d.port)}
	}, probe.ModeNetwork, string(text))
	err := sc.wait(probe.CaseReady)
	sc.end()
	if err != nil {
		return unable(err)
	}
	answered := false
	for _, t := range sc.out.Of("N16") {
		if t.Found != "" {
			return breach("from a sandbox, %s tells of another's", t.What)
		}
		answered = answered || t.Got
	}
	if !answered {
		return finding{verdict: Unclear, reason: "the daemon was not reached from inside, where it was allowed"}
	}
	var list struct {
		Sandboxes []struct {
			ID string `json:"id"`
		} `json:"sandboxes"`
	}
	if err := d.ask(ctx, "GET", "/v1/sandboxes", nil, &list); err != nil {
		return unable(err)
	}
	if len(list.Sandboxes) != 1 || list.Sandboxes[0].ID != id {
		return breach("a client without a key made or ended a sandbox: there are %d", len(list.Sandboxes))
	}
	return pass()
}

// neighbours has one sandbox look for another that listens.
func (s *suite) neighbours(ctx context.Context) finding {
	if f := s.wired(ctx); f != nil {
		return *f
	}
	port := fmt.Sprint(20000 + int(s.random[0])<<6 + int(s.random[1]))
	networked := func(c *session.Call) { c.Network = []string{goodHost} }
	listens := s.begin(ctx, networked, probe.ModeListen, port)
	defer listens.end()
	if err := listens.wait(probe.CaseReady); err != nil {
		return unable(err)
	}
	plan := probe.Knocks{Case: "N16", Resolver: resolver}
	hosts := []string{"127.0.0.1", "0.0.0.0", "10.0.0.1", "172.17.0.2", "169.254.0.1", "::1"}
	for n := range 8 {
		hosts = append(hosts, fmt.Sprintf("198.18.0.%d", n))
	}
	for _, host := range hosts {
		to := net.JoinHostPort(host, port)
		plan.List = append(plan.List, probe.Knock{What: "connect to " + to, To: to, Bytes: "neighbour\r\n"}, probe.Knock{What: "send to " + to, To: to, Bytes: "neighbour", UDP: true})
	}
	text, _ := json.Marshal(plan)
	looks := s.begin(ctx, networked, probe.ModeNetwork, string(text))
	err := looks.wait(probe.CaseReady)
	looks.end()
	listens.end()
	for _, t := range listens.out.Of("N16") {
		if t.Got {
			return breach("a sandbox was reached from another one: %s", t.What)
		}
	}
	if err != nil {
		return unable(err)
	}
	return pass()
}

// visitor is a request of a client without a key.
type visitor struct {
	what, method, path, body string
	headers                  []string
}

// text is r as it is sent to host.
func (r visitor) text(host string) string {
	lines := append([]string{}, r.headers...)
	named := ""
	for i, l := range lines {
		if h, ok := strings.CutPrefix(l, "Host: "); ok {
			named, lines = h, append(lines[:i:i], lines[i+1:]...)
			break
		}
	}
	if named == "" {
		named = host
	}
	if r.body != "" {
		lines = append(lines, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(r.body)))
	}
	connection := "Connection: close"
	if len(lines) > 0 && lines[0] == socket[0] {
		connection = "Connection: Upgrade"
	}
	return r.method + " " + r.path + " HTTP/1.1\r\nHost: " + named + "\r\n" + strings.Join(append(lines, connection, "", ""), "\r\n") + r.body
}

// heard makes the request and says what it got that it should not.
func (r visitor) heard(d *daemon, canary string) (why string, err error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", d.port), probeTimeout/3)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(probeTimeout / 3))
	if _, err := io.WriteString(c, r.text(net.JoinHostPort("127.0.0.1", d.port))); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) {
		return "", nil // it was hung up on
	}
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode < 300 {
		return fmt.Sprintf("%s: %s %s is answered: %s", r.what, r.method, r.path, res.Status), nil
	}
	if answer, _ := io.ReadAll(io.LimitReader(res.Body, 256<<10)); bytes.Contains(answer, []byte(canary)) {
		return fmt.Sprintf("%s: %s %s tells of another's sandbox", r.what, r.method, r.path), nil
	}
	return "", nil
}

// The ways that go through a sandbox's router as they are.
const (
	keyless  = "without a key"
	guessing = "with a guessed key"
)

// visitors are requests to all frontends of a daemon, in the ways of a client
// without a key.
func visitors(d *daemon, id string) (all []visitor) {
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	routes := []visitor{
		{method: "GET", path: "/v1/sandboxes"}, {method: "GET", path: "/v2/sandboxes"}, {method: "GET", path: "/sandboxes"},
		{method: "GET", path: "/v1/sandboxes/" + id}, {method: "GET", path: "/v1/sandboxes/" + id + "/logs"}, {method: "GET", path: "/v1/events"},
		{method: "GET", path: "/v1/approvals"}, {method: "GET", path: "/v1/tools"}, {method: "GET", path: "/v1/containers"}, {method: "GET", path: "/metrics"},
		{method: "POST", path: "/v1/sandboxes", body: "{}"}, {method: "POST", path: "/sandboxes", body: `{"templateID":"base"}`},
		{method: "POST", path: "/v1/runs", body: `{"command":["true"]}`}, {method: "DELETE", path: "/v1/sandboxes/" + id},
		{method: "POST", path: "/v1/sandboxes/" + id + "/exec", body: `{"shell":"env"}`},
		{method: "POST", path: "/mcp", body: initialize, headers: []string{"Accept: application/json, text/event-stream"}},
		{method: "GET", path: "/v1/sandboxes/" + id + "/exec", headers: socket},
	}
	for what, headers := range map[string][]string{
		keyless:                        {},
		"from another origin":          {"Origin: https://" + evilHost, "Sec-Fetch-Site: cross-site"},
		"from its own origin":          {"Origin: " + d.url},
		"under another name":           {"Host: " + evilHost + ":" + d.port, "Origin: http://" + evilHost + ":" + d.port},
		"under a name that begins so":  {"Host: " + localhost + "." + evilHost},
		guessing:                       {"X-API-Key: e2b_" + strings.Repeat("0", 40), "Authorization: Bearer e2b_" + strings.Repeat("0", 40)},
		"with an empty key":            {"X-API-Key: ", "Authorization: Bearer "},
		"with a cookie":                {"Cookie: key=" + strings.Repeat("0", 40) + "; session=1"},
		"as who stands in front of it": {"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: localhost", "X-Original-URL: /health"},
	} {
		for _, r := range routes {
			r.what, r.headers = what, append(append([]string{}, r.headers...), headers...)
			all = append(all, r)
		}
	}
	return all
}

// socket asks for a WebSocket, as a page may of any host.
var socket = []string{"Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
