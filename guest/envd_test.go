// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/guest/wire"
)

// envd speaks to the agent as E2B's SDKs speak to envd.
type envd struct {
	t    *testing.T
	conn *http.ClientConn
}

func newEnvd(t *testing.T, flags ...string) *envd {
	t.Helper()
	conn, err := newBox(t, flags...).opener.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	c, err := tr.NewClientConn(t.Context(), "http", "envd:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &envd{t, c}
}

func (e *envd) do(method, path, contentType, body string, header ...string) *http.Response {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, "http://envd"+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := e.conn.RoundTrip(r)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// call makes a unary call and returns its status and body.
func (e *envd) call(method, body string) (int, string) {
	e.t.Helper()
	resp := e.do("POST", "/"+method, "application/json", body)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// events is a server stream.
type events struct {
	t    *testing.T
	body io.Reader
}

func (e *envd) start(body string, header ...string) *events {
	e.t.Helper()
	resp := e.do("POST", "/process.Process/Start", "application/connect+json", string(wire.AppendFrame(nil, 0, []byte(body))), header...)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/connect+json" {
		e.t.Fatalf("status %d, type %q", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return &events{e.t, resp.Body}
}

// next returns an envelope's flags and its message.
func (s *events) next() (byte, string) {
	s.t.Helper()
	var h [5]byte
	if _, err := io.ReadFull(s.body, h[:]); err != nil {
		s.t.Fatal(err)
	}
	b := make([]byte, int(h[3])<<8|int(h[4]))
	if _, err := io.ReadFull(s.body, b); err != nil {
		s.t.Fatal(err)
	}
	return h[0], string(b)
}

// all returns the messages until the end of the stream.
func (s *events) all() []string {
	s.t.Helper()
	var m []string
	for {
		flags, text := s.next()
		m = append(m, fmt.Sprintf("%d %s", flags, text))
		if flags == 2 {
			return m
		}
	}
}

// pid reads the first event, which must be the start.
func (s *events) pid() int {
	s.t.Helper()
	_, text := s.next()
	var e struct {
		Event struct{ Start struct{ PID int } }
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.Event.Start.PID == 0 {
		s.t.Fatalf("the first event is %s", text)
	}
	return e.Event.Start.PID
}

func TestEnvdStart(t *testing.T) {
	e := newEnvd(t)
	s := e.start(`{"process":{"cmd":"/bin/bash","args":["-c","echo $A $HOME $USER $PWD; exit 3"],"envs":{"A":"b"},"cwd":"/tmp"},"stdin":false,"unknown":1}`)
	s.pid()
	want := []string{
		`0 {"event":{"data":{"stdout":"YiAvaG9tZS91c2VyIHVzZXIgL3RtcAo="}}}`, // b /home/user user /tmp
		`0 {"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"}}}`,
		`2 {}`,
	}
	if d := cmp.Diff(want, s.all()); d != "" {
		t.Error(d)
	}
	for _, tt := range [][2]string{
		{`{"process":{"cmd":"/bin/true","cwd":"/no/where"}}`, `"code":"invalid_argument"`},
		{`{"process":{"cmd":"no-such"}}`, `"message":"no-such: command not found"`},
		{`{}`, `"code":"invalid_argument"`},
	} {
		if got := e.start(tt[0]).all(); len(got) != 1 || !strings.HasPrefix(got[0], `2 {"error":`) || !strings.Contains(got[0], tt[1]) {
			t.Errorf("%s gives %q", tt[0], got)
		}
	}
}

func TestEnvdProcess(t *testing.T) {
	e := newEnvd(t)
	s := e.start(`{"process":{"cmd":"/bin/cat"},"tag":"mine"}`)
	pid := s.pid()
	status, list := e.call("process.Process/List", "{}")
	if want := fmt.Sprintf(`{"processes":[{"config":{"cmd":"/bin/cat"},"pid":%d,"tag":"mine"}]}`, pid); status != 200 || list != want {
		t.Errorf("list: %d %s, want %s", status, list, want)
	}
	if status, b := e.call("process.Process/SendInput", `{"process":{"tag":"mine"},"input":{"stdin":"aGkK"}}`); status != 200 {
		t.Errorf("input: %d %s", status, b)
	}
	if _, got := s.next(); got != `{"event":{"data":{"stdout":"aGkK"}}}` {
		t.Errorf("it echoes %s", got)
	}
	if status, b := e.call("process.Process/CloseStdin", fmt.Sprintf(`{"process":{"pid":%d}}`, pid)); status != 200 {
		t.Errorf("close: %d %s", status, b)
	}
	if got := s.all(); got[0] != `0 {"event":{"end":{"exitCode":0,"exited":true,"status":"exit status 0"}}}` {
		t.Errorf("it ends with %q", got)
	}
	for _, m := range []string{"SendSignal", "SendInput", "CloseStdin", "Update"} {
		if status, b := e.call("process.Process/"+m, fmt.Sprintf(`{"process":{"pid":%d},"signal":"SIGNAL_SIGKILL"}`, pid)); status != 404 || !strings.Contains(b, `"code":"not_found"`) {
			t.Errorf("%s of a dead process: %d %s", m, status, b)
		}
	}
	s = e.start(`{"process":{"cmd":"/bin/sleep","args":["1000"]}}`)
	if status, b := e.call("process.Process/SendSignal", fmt.Sprintf(`{"process":{"pid":%d},"signal":"SIGNAL_SIGKILL"}`, s.pid())); status != 200 {
		t.Errorf("kill: %d %s", status, b)
	}
	if got := s.all(); got[0] != `0 {"event":{"end":{"exitCode":-1,"exited":false,"status":"signal: killed","error":"signal: killed"}}}` {
		t.Errorf("it ends with %q", got)
	}
}

func TestEnvdTerminal(t *testing.T) {
	e := newEnvd(t)
	s := e.start(`{"process":{"cmd":"/bin/sh","args":["-c","stty size; read x; stty size"]},"pty":{"size":{"cols":90,"rows":30}}}`)
	pid := s.pid()
	screen := ""
	for !strings.HasSuffix(screen, "30 90\r\n") { // in one piece or in two
		_, text := s.next()
		more := shown(t, text)
		if more == "" {
			t.Fatalf("behind %q the terminal shows %s", screen, text)
		}
		screen += more
	}
	if status, b := e.call("process.Process/Update", fmt.Sprintf(`{"process":{"pid":%d},"pty":{"size":{"cols":50,"rows":10}}}`, pid)); status != 200 {
		t.Errorf("update: %d %s", status, b)
	}
	if status, b := e.call("process.Process/SendInput", fmt.Sprintf(`{"process":{"pid":%d},"input":{"pty":"Cg=="}}`, pid)); status != 200 {
		t.Errorf("input: %d %s", status, b)
	}
	screen = ""
	for _, text := range s.all() {
		screen += shown(t, text[len("0 "):])
	}
	if !strings.HasSuffix(screen, "10 50\r\n") { // behind the echo
		t.Errorf("after the resize it shows %q", screen)
	}
}

// shown is what an event says that a terminal shows.
func shown(t *testing.T, event string) string {
	t.Helper()
	var e struct {
		Event struct{ Data struct{ PTY []byte } }
	}
	if err := json.Unmarshal([]byte(event), &e); err != nil {
		t.Fatal(err)
	}
	return string(e.Event.Data.PTY)
}

func TestEnvdDeadlineAndKeepalive(t *testing.T) {
	e := newEnvd(t)
	s := e.start(`{"process":{"cmd":"/bin/sleep","args":["1000"]}}`, "Keepalive-Ping-Interval", "1")
	pid := s.pid()
	if _, got := s.next(); got != `{"event":{"keepalive":{}}}` {
		t.Errorf("the silent stream says %s", got)
	}
	if status, b := e.call("process.Process/SendSignal", fmt.Sprintf(`{"process":{"pid":%d},"signal":"SIGNAL_SIGKILL"}`, pid)); status != 200 {
		t.Errorf("kill: %d %s", status, b)
	}
	s.all()
	s = e.start(`{"process":{"cmd":"/bin/sleep","args":["1000"]}}`, "Connect-Timeout-Ms", "300")
	s.pid()
	if got := s.all(); !strings.Contains(got[len(got)-1], `"code":"deadline_exceeded"`) {
		t.Errorf("events %q", got)
	}
	if _, list := e.call("process.Process/List", "{}"); list != `{"processes":[]}` {
		t.Errorf("after its deadline there are %s", list)
	}
}

func TestEnvdFilesystem(t *testing.T) {
	e := newEnvd(t)
	for _, tt := range []struct {
		method, body string
		status       int
		want         string
	}{
		{"MakeDir", `{"path":"d/e"}`, 200, `"path":"/home/user/d/e"`},
		{"MakeDir", `{"path":"d/e"}`, 409, `"code":"already_exists"`},
		{"MakeDir", `{"path":"/etc/passwd"}`, 400, `"code":"invalid_argument"`},
		{"Stat", `{"path":"~/d"}`, 200, `"type":"FILE_TYPE_DIRECTORY"`},
		{"Stat", `{"path":"none"}`, 404, `"code":"not_found"`},
		{"ListDir", `{"path":"/home/user","depth":2}`, 200, `"/home/user/d/e"`},
		{"ListDir", `{"path":"/etc/passwd"}`, 400, `"code":"invalid_argument"`},
		{"ListDir", `{"path":"none"}`, 404, `"code":"not_found"`},
		{"Move", `{"source":"d","destination":"new/d"}`, 200, `"path":"/home/user/new/d"`},
		{"Move", `{"source":"d","destination":"x"}`, 404, `"code":"not_found"`},
		{"Remove", `{"path":"new"}`, 200, `{}`},
		{"Remove", `{"path":"new"}`, 200, `{}`},
		{"Stat", `{"path":`, 400, `"code":"invalid_argument"`},
		{"Nothing", `{}`, 404, ""},
	} {
		if status, b := e.call("filesystem.Filesystem/"+tt.method, tt.body); status != tt.status || !strings.Contains(b, tt.want) {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.body, status, b, tt.status, tt.want)
		}
	}
}

func TestEnvdFiles(t *testing.T) {
	e := newEnvd(t)
	if resp := e.do("GET", "/health", "", ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("health: %d", resp.StatusCode)
	}
	text := func(r *http.Response) string {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", r.StatusCode, b)
	}
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	for _, name := range []string{"a/b.txt", "empty"} { // file names with their directories
		w, err := m.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + name + `"`}})
		if err != nil {
			t.Fatal(err)
		}
		if name != "empty" {
			io.WriteString(w, "content")
		}
	}
	m.Close()
	for _, tt := range []struct{ what, got, want string }{
		{"form", text(e.do("POST", "/files?username=user", m.FormDataContentType(), form.String())), `200 [{"name":"b.txt","path":"/home/user/a/b.txt","type":"file"},{"name":"empty","path":"/home/user/empty","type":"file"}]`},
		{"bytes", text(e.do("POST", "/files?path=c", "application/octet-stream", "more")), `200 [{"name":"c","path":"/home/user/c","type":"file"}]`},
		{"read", text(e.do("GET", "/files?path=a/b.txt", "", "")), "200 content"},
		{"part", text(e.do("GET", "/files?path=a/b.txt", "", "", "Range", "bytes=3-4")), "206 te"},
		{"as root", text(e.do("GET", "/files?path=/etc/shadow&username=root", "", ""))[:4], "403 "},
		{"root's", text(e.do("GET", "/files?path=/etc/shadow", "", ""))[:4], "403 "},
		{"missing", text(e.do("GET", "/files?path=none", "", ""))[:4], "404 "},
		{"directory", text(e.do("GET", "/files?path=a", "", ""))[:4], "400 "},
		{"directory", text(e.do("POST", "/files?path=a", "application/octet-stream", "x"))[:4], "400 "},
		{"nobody", text(e.do("GET", "/files?path=c&username=no-such-user", "", ""))[:4], "401 "},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, tt.got, tt.want)
		}
	}
	if got := e.do("GET", "/files?path=empty", "", "").Header.Get("Content-Length"); got != "0" {
		t.Errorf("an empty file's length is %q", got)
	}
}
