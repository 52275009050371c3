// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/e2b"
	"github.com/caisson-run/caisson/policy"
)

// A policy's commands hold for processes: a program by its path is another one in
// another directory, however the client writes that.
func TestCommands(t *testing.T) {
	file, err := policy.Parse("/p.yaml", []byte("version: 1\ncommands: {allow: [./tool, ls]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := newFrontendUnder(t, file)
	b := d.create(t, "")
	for _, c := range []struct {
		process string
		allowed bool
	}{
		{`{"cmd":"ls"}`, true},
		{`{"cmd":"ls","cwd":"/tmp/"}`, true},
		{`{"cmd":"id"}`, false},
		{`{"cmd":"./tool"}`, true},
		{`{"cmd":"./tool","cwd":"/tmp"}`, false},
		{`{"cmd":"./tool","cwd":"/tmp/../tmp"}`, false},
		{`{"cmd":"./tool","cwd":"x"}`, false},
		{`{"cmd":"./tool","cwd":"~/x"}`, false},
		{`{"cmd":"ls","envs":{"LD_PRELOAD":"/tmp/x.so"}}`, false},
	} {
		_, answer, _ := d.raw(t, "POST", "/process.Process/Start", with(b.to(49983), "Content-Type", "application/connect+json"), envelope(`{"process":`+c.process+`,"stdin":false}`))
		if refused := bytes.Contains(answer, []byte("permission_denied")); refused == c.allowed {
			t.Errorf("%s: %q", c.process, answer)
		}
	}
}

// A key whose policy lists tools starts no program by E2B's API: nothing of the list
// would hold for it.
func TestProgramsByToolsAlone(t *testing.T) {
	const tools = "version: 1\ntools: [run_code, {name: run_command, rules: ['params.command == \"ls\"']}]\n"
	for text, runs := range map[string]bool{tools: false, tools + "commands: {allow: [ls]}\n": true, "version: 1\ntools: [run_command]\n": true} {
		file, err := policy.Parse("/p.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		d := newFrontendUnder(t, file)
		b := d.create(t, "")
		_, answer, _ := d.raw(t, "POST", "/process.Process/Start", with(b.to(49983), "Content-Type", "application/connect+json"),
			envelope(`{"process":{"cmd":"/bin/bash","args":["-l","-c","ls -d /; exit"]},"stdin":false}`))
		refused := bytes.Contains(answer, []byte("permission_denied")) && bytes.Contains(answer, []byte("run_command"))
		ran := bytes.Contains(answer, []byte(base64.StdEncoding.EncodeToString([]byte("/\n"))))
		if ran != runs || refused == runs {
			t.Errorf("%q: %q", text, answer)
		}
	}
}

// The SDKs start everything by a login shell. Under a policy's commands it reads no
// file that the agent has written, neither first nor when it ends.
func TestLoginShell(t *testing.T) {
	if _, err := os.Stat("/bin/bash"); err != nil {
		t.Fatal(err)
	}
	for text, runs := range map[string]bool{"version: 1\ncommands: {allow: [ls]}\n": false, "version: 1\n": true} {
		file, err := policy.Parse("/p.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		d := newFrontendUnder(t, file)
		b := d.create(t, "")
		for name, code := range map[string]string{".bash_profile": "echo stolen\n", ".bash_logout": "echo left\n"} {
			if status, a, _ := d.raw(t, "POST", "/files?path="+name, with(b.to(49983), "Content-Type", "application/octet-stream"), code); status != 200 {
				t.Fatalf("%d %s", status, a)
			}
		}
		_, answer, _ := d.raw(t, "POST", "/process.Process/Start", with(b.to(49983), "Content-Type", "application/connect+json"),
			envelope(`{"process":{"cmd":"/bin/bash","args":["-l","-c","ls -d /; exit"]},"stdin":false}`))
		var said []byte
		for _, piece := range regexp.MustCompile(`"stdout":"([^"]*)"`).FindAllSubmatch(answer, -1) {
			b, err := base64.StdEncoding.DecodeString(string(piece[1]))
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, b...)
		}
		want := "/\n"
		if runs {
			want = "stolen\n/\nleft\n"
		}
		if string(said) != want {
			t.Errorf("%q: it says %q, want %q: %q", text, said, want, answer)
		}
	}
}

// What a sandbox's life is told by.
func TestGone(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	hear := func(path string) int {
		status, _ := d.ask(t, "GET", path, with(b.to(49983)), "")
		return status
	}
	if s := hear("/health"); s != 204 {
		t.Fatal(s)
	}
	key := map[string]string{"X-API-Key": d.key}
	if status, _ := d.ask(t, "DELETE", "/sandboxes/"+b.id, key, ""); status != 204 {
		t.Fatal(status)
	}
	for _, path := range []string{"/health", "/files?path=/etc/passwd", "/anything"} {
		if s := hear(path); s != 502 {
			t.Errorf("%s: %d", path, s)
		}
	}
	for _, method := range []string{"DELETE", "GET"} {
		if status, a := d.ask(t, method, "/sandboxes/"+b.id, key, ""); status != 404 || a["code"] != 404.0 {
			t.Errorf("%s: %d %v", method, status, a)
		}
	}
}

// A stream that the end of its sandbox cuts is broken off, not finished.
func TestStreamBreaks(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	req, _ := http.NewRequestWithContext(t.Context(), "POST", d.url+"/process.Process/Start", strings.NewReader(envelope(`{"process":{"cmd":"sleep","args":["600"]}}`)))
	for k, v := range with(b.to(49983), "Content-Type", "application/connect+json") {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, head); err != nil {
		t.Fatal(err)
	}
	if status, _ := d.ask(t, "DELETE", "/sandboxes/"+b.id, map[string]string{"X-API-Key": d.key}, ""); status != 204 {
		t.Fatal(status)
	}
	rest, err := io.ReadAll(resp.Body)
	if err == nil {
		t.Errorf("the stream ended well: %q", rest)
	}
}

// Who is not this server's host is sent away, and a page of any origin needs a
// right of its own.
func TestOrigins(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	key := map[string]string{"X-API-Key": d.key}
	for host, want := range map[string]int{"": 200, "localhost:7420": 200, "api.localhost": 200, "evil.test": 421, "localhost.evil.test": 421, "127.0.0.1.evil.test": 421} {
		if status, a := d.ask(t, "GET", "/sandboxes/"+b.id, with(key, "Host", host), ""); status != want {
			t.Errorf("host %q: %d %v", host, status, a)
		}
	}
	status, _, h := d.raw(t, "OPTIONS", "/v2/sandboxes", map[string]string{"Origin": "https://app.test", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key, e2b-sandbox-id"}, "")
	if status != 204 || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Allow-Credentials") != "" || h.Get("Access-Control-Allow-Headers") != "x-api-key, e2b-sandbox-id" {
		t.Errorf("%d %v", status, h)
	}
	// What a form of a page can send has no right.
	if status, a := d.ask(t, "POST", "/v2/sandboxes", map[string]string{"Origin": "https://evil.test", "Content-Type": "text/plain"}, `{"templateID":"base"}`); status != 401 {
		t.Errorf("%d %v", status, a)
	}
}

func TestBadInput(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	key := map[string]string{"X-API-Key": d.key}
	for name, c := range map[string]struct {
		method, path string
		header       map[string]string
		body         string
		status       int
	}{
		"no JSON":                  {"POST", "/sandboxes", key, "{", 400},
		"a field that is refused":  {"POST", "/sandboxes", key, `{"templateID":"base","mcp":{"a":"b"}}`, 400},
		"a template that is none":  {"POST", "/sandboxes", key, `{"templateID":"nothing"}`, 404},
		"a body of megabytes":      {"POST", "/sandboxes", key, `{"templateID":"` + strings.Repeat("x", 2<<20) + `"}`, 413},
		"an id that is none":       {"GET", "/sandboxes/..%2f..%2fetc", key, "", 404},
		"an id with a NUL":         {"GET", "/sandboxes/a%00b", key, "", 404},
		"a path that is none":      {"GET", "/nothing", key, "", 404},
		"a volume":                 {"POST", "/volumes", key, `{"name":"v"}`, 501},
		"a volume that is none":    {"GET", "/volumes/v", key, "", 501},
		"a volume without a key":   {"GET", "/volumes", nil, "", 401},
		"a secret":                 {"GET", "/secrets/s", key, "", 501},
		"an image of the client's": {"POST", "/templates", key, `{"dockerfile":"FROM x"}`, 501},
		"a template's bad name":    {"POST", "/v3/templates", key, `{"name":":x"}`, 400},
		"a template's bad tag":     {"POST", "/v3/templates", key, `{"name":"x","tags":[""]}`, 400},
		"the operator's name":      {"POST", "/v3/templates", key, `{"name":"base"}`, 409},
		"a template without a key": {"POST", "/v3/templates", nil, `{"name":"x"}`, 401},
		"a hash that is none":      {"GET", "/templates/t/files/..%2f..%2fetc", key, "", 400},
		"an upload without right":  {"PUT", "/templates/uploads/x", key, "", 403},
		"a build that is none":     {"POST", "/v2/templates/t/builds/b", key, `{"fromTemplate":"x","steps":[]}`, 404},
		"a build's status":         {"GET", "/templates/t/builds/b/status", key, "", 404},
		"a build's logs":           {"GET", "/templates/t/builds/b/logs", key, "", 404},
		"a registry's credentials": {"POST", "/v2/templates/t/builds/b", key, `{"fromImage":"x","fromImageRegistry":{"type":"registry"}}`, 400},
		"credentials for no image": {"POST", "/v2/templates/t/builds/b", key, `{"fromTemplate":"x","fromImageRegistry":{"type":"registry","username":"a","password":"b"}}`, 400},
		"credentials of Amazon's":  {"POST", "/v2/templates/t/builds/b", key, `{"fromImage":"x","fromImageRegistry":{"type":"aws","awsRegion":"r"}}`, 400},
		"credentials of no build":  {"POST", "/v2/templates/t/builds/b", key, `{"fromImage":"x","fromImageRegistry":{"type":"gcp","serviceAccountJson":"{}"}}`, 403},
		"a template made public":   {"PATCH", "/v2/templates/t", key, `{"public":true}`, 403},
		"a template's tags":        {"GET", "/templates/t/tags", key, "", 404},
		"a tag that is none":       {"POST", "/templates/tags", key, `{"target":"name:","tags":["a"]}`, 400},
		"a tag that is not there":  {"DELETE", "/templates/tags", key, `{"name":"t","tags":["a"]}`, 404},
		"a bad limit":              {"GET", "/v2/sandboxes?limit=101", key, "", 400},
		"a bad state":              {"GET", "/v2/sandboxes?state=running,dead", key, "", 400},
		"a bad page":               {"GET", "/v2/sandboxes?nextToken=AAAA", key, "", 400},
		"a bad filter":             {"GET", "/v2/sandboxes?metadata=%25zz", key, "", 400},
		"a fork":                   {"POST", "/sandboxes/" + b.id + "/fork", key, `{"count":101}`, 400},
		"a bad time":               {"GET", "/sandboxes/" + b.id + "/metrics?start=yesterday", key, "", 400},
		"one header of two":        {"GET", "/health", map[string]string{"E2b-Sandbox-Id": b.id}, "", 400},
		"a call that is none":      {"POST", "/process.Process/Nothing", b.to(49983), "{}", 404},
		"E2B's own calls":          {"POST", "/init", b.to(49983), "{}", 404},
		"a call without JSON":      {"POST", "/process.Process/List", b.to(49983), "x", 400},
		"a stream of another type": {"POST", "/process.Process/Start", with(b.to(49983), "Content-Type", "application/proto"), "x", 415},
		"a signal that is none":    {"POST", "/process.Process/SendSignal", b.to(49983), `{"process":{"pid":1},"signal":"SIGNAL_SIGSTOP"}`, 400},
		"a process that is none":   {"POST", "/process.Process/SendSignal", b.to(49983), `{"process":{"pid":99999},"signal":"SIGNAL_SIGKILL"}`, 404},
		"input that is none":       {"POST", "/process.Process/SendInput", b.to(49983), `{"process":{"pid":1},"input":{}}`, 400},
		"a signature of nobody":    {"GET", "/files?path=x&signature=v1_x", nil, "", 401},
		"no signature":             {"GET", "/files?path=x", nil, "", 404},
	} {
		t.Run(name, func(t *testing.T) {
			status, a := d.ask(t, c.method, c.path, c.header, c.body)
			ours := a["message"] != "" && a["code"] != nil
			if elsewhere := a["detail"] != nil && a["status"] != nil; status != c.status || !ours && !elsewhere { // what is no path of E2B's is the v1 API's
				t.Errorf("%d %v, want %d", status, a, c.status)
			}
		})
	}
	for name, body := range map[string]string{"nothing": "", "half an envelope": "\x00\x00", "no JSON": envelope("{"), "no command": envelope(`{"process":{}}`), "4 GiB": "\x00\xff\xff\xff\xff{"} {
		status, answer, _ := d.raw(t, "POST", "/process.Process/Start", with(b.to(49983), "Content-Type", "application/connect+json"), body)
		if status != 200 || len(answer) < 5 || answer[0] != 2 || !bytes.Contains(answer, []byte(`"error"`)) {
			t.Errorf("%s: %d %q", name, status, answer)
		}
	}
	if got := d.sh(t, b, "echo alive"); got != "alive\n" {
		t.Errorf("%q", got)
	}
}

// A thousand streams that are begun and never asked for whole keep no other client
// out, and leave nothing.
func TestHalfStreams(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	var held []net.Conn
	for range 1000 {
		c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n"+
			"Content-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n\x00\x00\x00\x10\x00{\"pr\r\n", b.id, b.token)
		held = append(held, c)
	}
	if status, a := d.ask(t, "POST", "/v2/sandboxes", map[string]string{"X-API-Key": d.other}, `{"templateID":"base"}`); status != 201 {
		t.Errorf("another key: %d %v", status, a)
	}
	if status, _ := d.ask(t, "GET", "/health", b.to(49983), ""); status != 204 {
		t.Errorf("the sandbox: %d", status)
	}
	for _, c := range held {
		c.Close()
	}
	if got := d.sh(t, b, "echo alive"); got != "alive\n" {
		t.Errorf("%q", got)
	}
}

// Ports are reached by header and by name; what leads back to the client stays
// within its origin, and what a client sends by mistake is not given away.
func TestPorts(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	program := `
import http.server, hashlib, base64
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade"); self.end_headers()
            while True:
                line = self.rfile.readline()
                if not line: return
                self.wfile.write(line.upper())
        text = "\n".join(f"{k}: {v}" for k, v in self.headers.items()).encode()
        self.send_response(200); self.send_header("Set-Cookie", "a=b; Domain=localhost; Path=/"); self.send_header("Content-Length", str(len(text))); self.end_headers()
        self.wfile.write(text)
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8099), H)
print("listening", flush=True)
server.serve_forever()
`
	q, _ := json.Marshal(map[string]any{"process": map[string]any{"cmd": "python3", "args": []string{"-c", program}}})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	req, _ := http.NewRequestWithContext(ctx, "POST", d.url+"/process.Process/Start", strings.NewReader(envelope(string(q))))
	for k, v := range with(b.to(49983), "Content-Type", "application/connect+json") {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	name := "8099-" + b.id + ".localhost:1"
	get := func(h map[string]string) (int, string, http.Header) {
		status, text, header := d.raw(t, "GET", "/", h, "")
		return status, string(text), header
	}
	untilOutput(t, resp.Body)
	if status, text, _ := get(map[string]string{"Host": name}); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	status, text, h := get(map[string]string{"Host": name, "X-API-Key": d.key, "Authorization": "Bearer " + d.key, "X-Own": "kept"})
	if status != 200 || strings.Contains(text, "e2b_") || !strings.Contains(text, "X-Own: kept") || !strings.Contains(text, "Host: "+name) {
		t.Errorf("%d %s", status, text)
	}
	if got := h.Get("Set-Cookie"); got != "a=b; Path=/" || h.Get("Content-Security-Policy") != "" || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("by name: %v", h)
	}
	if _, _, h := get(b.to(8099)); h.Get("Set-Cookie") != "" || h.Get("Content-Security-Policy") != "sandbox" {
		t.Errorf("by header: %v", h)
	}
	if status, text, _ := get(map[string]string{"Host": "8098-" + b.id + ".localhost"}); status != 502 || !strings.Contains(text, "port is not open") {
		t.Errorf("a closed port: %d %s", status, text)
	}
	if status, _, _ := get(map[string]string{"Host": "8099-inobody.localhost"}); status != 502 {
		t.Errorf("no sandbox: %d", status)
	}
	upgrade(t, d.url, name)
}

// untilOutput reads a process's stream until it has written something.
func untilOutput(t *testing.T, r io.Reader) {
	t.Helper()
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			t.Fatalf("the process has written nothing: %v", err)
		}
		message := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(r, message); err != nil || head[0] != 0 {
			t.Fatalf("the process has written nothing: %q, %v", message, err)
		}
		if bytes.Contains(message, []byte(`"data"`)) {
			return
		}
	}
}

// upgrade speaks in both directions over an upgraded connection.
func upgrade(t *testing.T, url, host string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", host)
	buf := make([]byte, 4096)
	var got string
	for !strings.Contains(got, "\r\n\r\n") {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	if !strings.HasPrefix(got, "HTTP/1.1 101 ") {
		t.Fatal(got)
	}
	for _, line := range []string{"one\n", "two\n"} {
		io.WriteString(c, line)
		n, err := c.Read(buf)
		if err != nil || string(buf[:n]) != strings.ToUpper(line) {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
}

func TestPrivatePorts(t *testing.T) {
	d := newFrontend(t)
	_, a := d.ask(t, "POST", "/v2/sandboxes", map[string]string{"X-API-Key": d.key}, `{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	id, _ := a["sandboxID"].(string)
	token, _ := a["trafficAccessToken"].(string)
	if token == "" {
		t.Fatal(a)
	}
	host := map[string]string{"Host": "8099-" + id + ".localhost"}
	for token, want := range map[string]int{"": 403, "x": 403, a["envdAccessToken"].(string): 403, token: 502} {
		if status, a := d.ask(t, "GET", "/", with(host, "E2b-Traffic-Access-Token", token), ""); status != want {
			t.Errorf("%q: %d %v", token, status, a)
		}
	}
}

// Files by a right of their own, found without a name.
func TestSignedFiles(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	d.create(t, "")
	d.sh(t, b, "printf content > /home/user/signed")
	sign := func(op string, exp string) string {
		return "/files?path=%2Fhome%2Fuser%2Fsigned&signature=" + e2b.Sign("/home/user/signed", op, "", b.token, exp) + "&signature_expiration=" + exp
	}
	far := fmt.Sprint(time.Now().Add(time.Hour).Unix())
	for name, c := range map[string]struct {
		method, url string
		status      int
	}{
		"read":         {"GET", sign("read", ""), 200},
		"read in time": {"GET", sign("read", far), 200},
		"too late":     {"GET", sign("read", "1000"), 401},
		"to write":     {"POST", sign("read", ""), 401},
		"another path": {"GET", strings.Replace(sign("read", ""), "signed&", "other&", 1), 401},
		"for ever":     {"GET", strings.Replace(sign("read", far), far, "9999999999", 1), 401},
	} {
		if status, text, h := d.raw(t, c.method, c.url, nil, ""); status != c.status || status == 200 && (string(text) != "content" || h.Get("Content-Disposition") != "attachment") {
			t.Errorf("%s: %d %s %v", name, status, text, h)
		}
	}
	// Whose rights it has was signed, too.
	for _, user := range []string{"root", "nobody", "stranger"} {
		basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
		for name, h := range map[string]map[string]string{
			"alone":          {"Authorization": basic},
			"to the sandbox": {"Authorization": basic, "E2b-Sandbox-Id": b.id, "E2b-Sandbox-Port": "49983"},
		} {
			if status, text, _ := d.raw(t, "GET", "/files?path=signed&signature="+e2b.Sign("signed", "read", "", b.token, ""), h, ""); status != 200 || string(text) != "content" {
				t.Errorf("%s as %s: %d %s", name, user, status, text)
			}
		}
	}
}

// A written output limit ends a process that has more, for everybody who listens.
func TestOutputLimit(t *testing.T) {
	file, err := policy.Parse("/p.yaml", []byte("version: 1\nlimits: {output: 4KiB}\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := newFrontendUnder(t, file)
	b := d.create(t, "")
	for _, c := range []struct {
		line, file       string
		maximum, minimum int
	}{
		{"head -c 4096 /dev/zero | tr '\\0' x; echo y >&2; touch whole", "whole", 4098, 4098},
		{"while :; do echo endless; done; touch out", "", 4096, 4096},
		{"while :; do echo endless; done >&2; touch out", "", 4096, 4096},
	} {
		if n := len(d.sh(t, b, c.line)); n < c.minimum || n > c.maximum {
			t.Errorf("%s: %d bytes came", c.line, n)
		}
		if got := strings.TrimSpace(d.sh(t, b, "ls out whole 2>/dev/null; rm -f whole")); got != c.file {
			t.Errorf("%s: it left %q", c.line, got)
		}
	}
}
