// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The requests of E2B's Python client, as it writes them (2.9.0, and 2.45.1, which names no
// user and sends files as they are, too): paths of version 1,
// protobuf's JSON with defaults left out, a Basic user on every call to the
// agent, forms with whole paths as file names, and watchers that are asked from
// time to time. $ID and $TOKEN are the sandbox's, $1 what an answer before matched in
// its parentheses last. A stream that is begun is read up to its first message, and to
// its end by the call rest.
var python = []struct {
	call   string // method, path, and perhaps how: "stream", "begin", "form", "octets", "gzip"
	body   string
	status int
	want   string // a pattern of the answer
}{
	{"POST /sandboxes", `{"templateID":"base","metadata":{"lang":"py"},"timeout":300,"envVars":{"A":"b"},"autoPause":false,"secure":true,"allow_internet_access":true}`, 201, `"sandboxID":"(i[a-z0-9]{20})".*"envdVersion":"0\.6\.13".*"envdAccessToken":"[0-9a-f]{40}"`},
	{"GET /sandboxes/$ID", "", 200, `"state":"running".*"lifecycle":\{"autoResume":false,"onTimeout":"kill"\}`},
	{"GET /sandboxes?metadata=lang%253Dpy", "", 200, `^\[\]$`}, // escaped once too often: another name
	{"GET /sandboxes?metadata=lang%3Dpy", "", 200, `"sandboxID":"$ID"`},
	{"GET /v2/sandboxes?metadata=lang%3Dpy&state=running&state=paused&limit=10", "", 200, `"sandboxID":"$ID"`},
	{"POST /sandboxes/$ID/timeout", `{"timeout":600}`, 204, ""},
	{"POST /sandboxes/$ID/refreshes", `{"duration":60}`, 204, ""},
	{"POST /sandboxes/$ID/connect", `{"timeout":30}`, 200, `"sandboxID":"$ID"`},
	{"GET /sandboxes/$ID/metrics", "", 200, `"memTotal":[1-9]`},

	{"GET /health", "", 204, ""},
	{"POST /process.Process/Start stream", `{"process":{"cmd":"/bin/bash","args":["-l","-c","echo $A"],"envs":{}},"stdin":false}`, 200, `{"event":{"start":{"pid":\d+}}}.*"stdout":"Ygo=".*"end":{"exitCode":0,"exited":true,"status":"exit status 0"}.*\x02\x00\x00\x00\x02{}$`},
	{"POST /process.Process/Start stream", `{"process":{"cmd":"/nowhere"}}`, 200, `\x02....{"error":{"code":"invalid_argument"`},
	{"POST /process.Process/List", `{}`, 200, `{"processes":\[\]}`},
	{"POST /process.Process/SendSignal", `{"process":{"pid":4242},"signal":"SIGNAL_SIGKILL"}`, 404, `"code":"not_found"`},

	{"POST /process.Process/Start begin", `{"process":{"cmd":"/bin/bash","args":["-l","-c","read -r x; echo \"got $x\"; cat"]},"tag":"mine","stdin":true}`, 200, `{"event":{"start":{"pid":(\d+)}}}`},
	{"POST /process.Process/List", `{}`, 200, `"config":{"cmd":"/bin/bash","args":\["-l","-c",.*"pid":$1,"tag":"mine"`},
	{"POST /process.Process/SendInput", `{"process":{"pid":$1},"input":{"stdin":"aXQK"}}`, 200, `{}`},
	{"POST /process.Process/SendInput", `{"process":{"tag":"mine"},"input":{"stdin":"bW9yZQo="}}`, 200, `{}`},
	{"POST /process.Process/CloseStdin", `{"process":{"pid":$1}}`, 200, `{}`},
	{"rest", "", 200, `"stdout":"Z290IGl0C.*"end":{"exitCode":0,"exited":true,"status":"exit status 0"}.*\x02\x00\x00\x00\x02{}$`},
	{"POST /process.Process/Connect stream", `{"process":{"pid":999999}}`, 200, `\x02....{"error":{"code":"not_found"`},
	{"POST /process.Process/Start begin", `{"process":{"cmd":"/bin/bash","args":["-i","-l"],"envs":{"TERM":"xterm-256color","LANG":"C.UTF-8"}},"pty":{"size":{"cols":80,"rows":24}}}`, 200, `{"event":{"start":{"pid":(\d+)}}}`},
	{"POST /process.Process/Update", `{"process":{"pid":$1},"pty":{"size":{"cols":100,"rows":40}}}`, 200, `{}`},
	{"POST /process.Process/SendInput", `{"process":{"pid":$1},"input":{"pty":"c3R0eSBzaXplOyBleGl0IDcK"}}`, 200, `{}`},
	{"rest", "", 200, `"pty":".*"end":{"exitCode":7,"exited":true,"status":"exit status 7"`},
	{"POST /process.Process/Start begin", `{"process":{"cmd":"/bin/sleep","args":["600"]}}`, 200, `{"event":{"start":{"pid":(\d+)}}}`},
	{"POST /process.Process/SendSignal", `{"process":{"pid":$1},"signal":"SIGNAL_SIGTERM"}`, 200, `{}`},
	{"rest", "", 200, `"end":{"exitCode":-1,.*"signal: terminated"`},

	{"POST /files?path=&username=user form", "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/home/user/py/a.txt\"\r\n\r\nhello\r\n--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"py/b.txt\"\r\n\r\nyou\r\n--B--\r\n", 200, `"path":"/home/user/py/a.txt","type":"file".*"path":"/home/user/py/b.txt"`},
	{"GET /files?path=/home/user/py/a.txt&username=user", "", 200, `^hello$`},
	{"POST /files?path=/home/user/py/b.txt&username=user octets", "as it is", 200, `"path":"/home/user/py/b.txt","type":"file"`},
	{"GET /files?path=/home/user/py/b.txt&username=user", "", 200, `^as it is$`},
	{"POST /files?path=/home/user/py/b.txt&username=user gzip", "packed", 200, `"path":"/home/user/py/b.txt"`},
	{"GET /files?path=/home/user/py/b.txt&username=user", "", 200, `^packed$`},
	{"POST /filesystem.Filesystem/ListDir", `{"path":"/home/user/py","depth":1}`, 200, `"name":"a.txt","type":"FILE_TYPE_FILE".*"size":"5".*"name":"b.txt"`},
	{"POST /filesystem.Filesystem/Stat", `{"path":"py/none"}`, 404, `"code":"not_found"`},
	{"POST /filesystem.Filesystem/MakeDir", `{"path":"py"}`, 409, `"code":"already_exists"`},
	{"POST /filesystem.Filesystem/CreateWatcher", `{"path":"/home/user/py"}`, 200, `"watcherId":"([^"]+)"`},
	{"POST /filesystem.Filesystem/Move", `{"source":"py/a.txt","destination":"py/c.txt"}`, 200, `"path":"/home/user/py/c.txt"`},
	{"POST /filesystem.Filesystem/GetWatcherEvents", `{"watcherId":"$1"}`, 200, `"name":"c.txt","type":"EVENT_TYPE_CREATE"`},
	// Its tests count what a new file does: made, given to its user, written.
	{"POST /files?path=/home/user/py/new.txt&username=user form", "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/home/user/py/new.txt\"\r\n\r\nnew\r\n--B--\r\n", 200, `"path":"/home/user/py/new.txt"`},
	{"POST /filesystem.Filesystem/GetWatcherEvents", `{"watcherId":"$1"}`, 200, `^{"events":\[{"name":"new.txt","type":"EVENT_TYPE_CREATE"[^}]*},{"name":"new.txt","type":"EVENT_TYPE_CHMOD"[^}]*},{"name":"new.txt","type":"EVENT_TYPE_WRITE"[^}]*}\]}`},
	{"POST /filesystem.Filesystem/RemoveWatcher", `{"watcherId":"$1"}`, 200, `{}`},
	{"POST /filesystem.Filesystem/GetWatcherEvents", `{"watcherId":"$1"}`, 404, `"code":"not_found"`},
	{"POST /filesystem.Filesystem/Remove", `{"path":"/home/user/py"}`, 200, `{}`},

	{"POST /sandboxes/$ID/resume", `{"timeout":30}`, 409, `"code":409`},
	{"POST /sandboxes/$ID/pause", `{"memory":false}`, 501, `cannot pause a sandbox without its memory`},
	{"POST /sandboxes/$ID/pause", `{"memory":true}`, 204, ""},
	{"POST /sandboxes/$ID/pause", `{"memory":true}`, 409, `"code":409`},
	{"GET /sandboxes/$ID", "", 200, `"state":"paused"`},
	{"POST /sandboxes/$ID/connect", `{"timeout":30,"memory":false}`, 400, `paused with its memory`},
	{"POST /sandboxes/$ID/connect", `{"timeout":30}`, 201, `"sandboxID":"$ID"`},
	{"POST /sandboxes/$ID/fork", `{"count":0}`, 400, `"code":400`},
	{"GET /snapshots?sandboxID=$ID", "", 200, `^\[\]$`},
	{"DELETE /templates/team%2Fname%3Adefault", "", 404, `"code":404`},
	{"PUT /sandboxes/$ID/network", `{"allowOut":[]}`, 204, ""},
	{"PUT /sandboxes/$ID/network", `{"allowOut":["pypi.org"],"denyOut":["0.0.0.0/0"]}`, 403, `"code":403`},
	{"PUT /sandboxes/$ID/network", `{"allowOut":["pypi.org"]}`, 400, `"code":400`},
	{"PUT /sandboxes/$ID/network", `{"rules":{"a.test":[{"transform":{"headers":{"host":"y"}}}]}}`, 400, `network.rules`},
	{"PUT /sandboxes/$ID/network", `{"allowPublicTraffic":false}`, 400, `allowPublicTraffic`},
	{"DELETE /sandboxes/$ID", "", 204, ""},
	{"DELETE /sandboxes/$ID", "", 404, `"code":404`},
	{"GET /health", "", 502, `"code":502`},
}

// begin begins a stream and returns its first message, and the rest to be read.
func (d *frontend) begin(t *testing.T, path string, header map[string]string, body string) (int, []byte, io.ReadCloser) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	var head [5]byte
	if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
		t.Fatal(err)
	}
	message := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(resp.Body, message); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, message, resp.Body
}

func TestPython(t *testing.T) {
	for _, version := range []string{"2.9.0", "2.45.1"} {
		t.Run(version, func(t *testing.T) { asPython(t, version) })
	}
}

func asPython(t *testing.T, version string) {
	unnamed := strings.NewReplacer()
	if version != "2.9.0" { // the agent's default is its user
		unnamed = strings.NewReplacer("?path=&username=user", "", "&username=user", "")
	}
	d := newFrontend(t)
	var id, token, kept string
	var begun io.ReadCloser
	for _, c := range python {
		fill := strings.NewReplacer("$ID", id, "$1", kept)
		words := strings.Fields(c.call)
		if c.call == "rest" {
			words = []string{"", ""}
		}
		path := unnamed.Replace(fill.Replace(words[1]))
		header := map[string]string{"User-Agent": "e2b-python-sdk/" + version, "Content-Type": "application/json"}
		if strings.HasPrefix(path, "/sandboxes") || strings.HasPrefix(path, "/v2/") || strings.HasPrefix(path, "/snapshots") || strings.HasPrefix(path, "/templates") {
			header["X-API-KEY"] = d.key
		} else {
			header["E2b-Sandbox-Id"], header["E2b-Sandbox-Port"], header["X-Access-Token"] = id, "49983", token
			if version == "2.9.0" {
				header["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"))
			}
			header["Connect-Protocol-Version"], header["Connect-Timeout-Ms"], header["Keepalive-Ping-Interval"] = "1", "60000", "50"
		}
		body := fill.Replace(c.body)
		if len(words) > 2 {
			switch words[2] {
			case "stream", "begin":
				header["Content-Type"], body = "application/connect+json", envelope(body)
			case "form":
				header["Content-Type"] = "multipart/form-data; boundary=B"
			case "octets":
				header["Content-Type"] = "application/octet-stream"
			case "gzip":
				var b bytes.Buffer
				z := gzip.NewWriter(&b)
				_, werr := z.Write([]byte(body))
				if err := errors.Join(werr, z.Close()); err != nil {
					t.Fatal(err)
				}
				header["Content-Type"], header["Content-Encoding"], body = "application/octet-stream", "gzip", b.String()
			}
		}
		want := regexp.MustCompile("(?s)" + fill.Replace(c.want))
		var status int
		var answer []byte
		switch {
		case c.call == "rest":
			b, err := io.ReadAll(begun)
			if err != nil {
				t.Fatal(err)
			}
			begun.Close()
			status, answer = c.status, b
		case strings.HasSuffix(c.call, " begin"):
			status, answer, begun = d.begin(t, path, header, body)
		}
		for end := time.Now().Add(2 * time.Minute); status == 0; { // what a watcher knows comes a little later
			var got int
			got, answer, _ = d.raw(t, words[0], path, header, body)
			if !strings.HasSuffix(path, "GetWatcherEvents") || got != c.status || want.Match(answer) || time.Now().After(end) {
				status = got
			}
		}
		if status != c.status || !want.Match(answer) {
			t.Fatalf("%s: %d %q, want %d %s", c.call, status, answer, c.status, want)
		}
		if m := want.FindSubmatch(answer); len(m) > 1 {
			kept = string(m[1])
		}
		if id == "" {
			var a struct{ SandboxID, EnvdAccessToken string }
			if err := json.Unmarshal(answer, &a); err != nil {
				t.Fatal(err)
			}
			id, token = a.SandboxID, a.EnvdAccessToken
		}
	}
}
