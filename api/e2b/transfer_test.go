// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/e2b"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
)

func form(parts ...string) (contentType, body string) {
	var b strings.Builder
	for i := 0; i < len(parts); i += 2 {
		fmt.Fprintf(&b, "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=%q\r\n\r\n%s\r\n", parts[i], parts[i+1])
	}
	return "multipart/form-data; boundary=x", b.String() + "--x--\r\n"
}

// Whatever moves or changes files is decided by the path that it really means, and
// what is refused has not happened.
func TestTransfersAreDecided(t *testing.T) {
	file, err := policy.Parse("/p.yaml", []byte(`version: 1
files: {deny: ["**/.env", "**/.ssh"]}
commands: {allow: ["*"]}
tools:
  - {name: write_file, rules: ['path.under(params.path, "/home/user")']}
  - {name: read_file, approve: {when: 'path.base(params.path) == "asked"'}}
risk: {high: ['tool.name == "write_file" && path.ext(params.path) == ".sh"'], on_high: deny}
`))
	if err != nil {
		t.Fatal(err)
	}
	d := newFrontendUnder(t, file)
	b := d.create(t, "")
	d.sh(t, b, "cd /home/user; mkdir -p .ssh; printf secret > .env; printf key > .ssh/id; printf x > asked; printf plain > plain; printf other > /tmp/other")
	octets := with(b.to(49983), "Content-Type", "application/octet-stream")
	rpc := with(b.to(49983), "Content-Type", "application/json")
	multipart, body := form("good", "1", "sub/../.env", "2")
	sign := func(op string) string { return "&signature=" + e2b.Sign(".env", op, "", b.token, "") }
	for name, c := range map[string]struct {
		method, url string
		header      map[string]string
		body        string
		rule        string // in the answer; empty where it is allowed
	}{
		"read":                 {"GET", "/files?path=plain", octets, "", ""},
		"read what is denied":  {"GET", "/files?path=.env", octets, "", "files.deny"},
		"from the root":        {"GET", "/files?path=/home/user/.env", octets, "", "files.deny"},
		"around a corner":      {"GET", "/files?path=/tmp/../home/user/./.env", octets, "", "files.deny"},
		"from home":            {"GET", "/files?path=~/.env", octets, "", "files.deny"},
		"the head alone":       {"HEAD", "/files?path=.env", octets, "", "-"},
		"below what is denied": {"GET", "/files?path=.ssh/id", octets, "", "files.deny"},
		"by a signature":       {"GET", "/files?path=.env" + sign("read"), nil, "", "files.deny"},
		"asked about":          {"GET", "/files?path=asked", octets, "", "no approver can be asked"},
		"write":                {"POST", "/files?path=new", octets, "new", ""},
		"write what is denied": {"POST", "/files?path=.env", octets, "new", "files.deny"},
		"write by a signature": {"POST", "/files?path=.env" + sign("write"), map[string]string{"Content-Type": "application/octet-stream"}, "new", "files.deny"},
		"outside the rule":     {"POST", "/files?path=/tmp/new", octets, "new", "path.under"},
		"risky":                {"POST", "/files?path=run.sh", octets, "new", "risky"},
		"a form":               {"POST", "/files", with(b.to(49983), "Content-Type", multipart), body, "files.deny"},
		"a form with a path":   {"POST", "/files?path=.env", with(b.to(49983), "Content-Type", multipart), body, "files.deny"},
		"compose":              {"POST", "/files/compose", rpc, `{"source_paths":["plain"],"destination":".env"}`, "files.deny"},
		"compose from":         {"POST", "/files/compose", rpc, `{"source_paths":[".env"],"destination":"copy"}`, "files.deny"},
		"compose from asked":   {"POST", "/files/compose", rpc, `{"source_paths":["plain","asked"],"destination":"copy"}`, "no approver can be asked"},
		"move from asked":      {"POST", "/filesystem.Filesystem/Move", rpc, `{"source":"asked","destination":"moved"}`, "no approver can be asked"},
		"remove":               {"POST", "/filesystem.Filesystem/Remove", rpc, `{"path":".env"}`, "files.deny"},
		"remove outside":       {"POST", "/filesystem.Filesystem/Remove", rpc, `{"path":"/tmp/other"}`, "path.under"},
		"move from":            {"POST", "/filesystem.Filesystem/Move", rpc, `{"source":".env","destination":"moved"}`, "files.deny"},
		"move to":              {"POST", "/filesystem.Filesystem/Move", rpc, `{"source":"plain","destination":".env"}`, "files.deny"},
		"make":                 {"POST", "/filesystem.Filesystem/MakeDir", rpc, `{"path":"/tmp/dir"}`, "path.under"},
	} {
		status, answer, _ := d.raw(t, c.method, c.url, c.header, c.body)
		switch {
		case c.rule == "" && status != 200:
			t.Errorf("%s: %d %s", name, status, answer)
		case c.rule == "-" && status != 403, c.rule != "" && c.rule != "-" && (status != 403 || !strings.Contains(string(answer), c.rule)):
			t.Errorf("%s: %d %s, want 403 and %q", name, status, answer, c.rule)
		}
	}
	if got := d.sh(t, b, "cd /home/user; cat .env .ssh/id plain new; ls moved copy run.sh /tmp/new /tmp/dir 2>/dev/null; cat /tmp/other"); got != "secretkeyplainnewother" {
		t.Errorf("there is now %q", got)
	}
}

// Each transfer is recorded with who, what, how many bytes, and what came of it.
func TestTransfersAreRecorded(t *testing.T) {
	file, err := policy.Parse("/p.yaml", []byte("version: 1\nfiles: {deny: [\"**/.env\"]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := newFrontendUnder(t, file)
	b := d.create(t, "")
	octets := with(b.to(49983), "Content-Type", "application/octet-stream", "Accept-Encoding", "identity")
	rpc := with(b.to(49983), "Content-Type", "application/json")
	ask := func(method, url string, h map[string]string, body string) {
		t.Helper()
		d.raw(t, method, url, h, body)
	}
	big := strings.Repeat("x", 1<<20)
	ask("POST", "/files?path=a", octets, big)
	ask("GET", "/files?path=a", octets, "")
	ask("GET", "/files?path=a", with(octets, "Range", "bytes=0-9"), "")
	ask("GET", "/files?path=missing", octets, "")
	ask("POST", "/files?path=.env", octets, "no")
	multipart, body := form("one", "1", "dir/two", "22", "~/.env", "no")
	ask("POST", "/files", with(b.to(49983), "Content-Type", multipart), body)
	ask("POST", "/filesystem.Filesystem/Move", rpc, `{"source":"a","destination":"b"}`)
	ask("POST", "/filesystem.Filesystem/Remove", rpc, `{"path":"b"}`)
	ask("POST", "/filesystem.Filesystem/MakeDir", rpc, `{"path":"dir2"}`)
	digest := func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:])[:8] }
	want := []string{
		`write_file {"path":"/home/user/a"} allowed /home/user/a 1048576 ` + digest(big),
		`read_file {"path":"/home/user/a"} allowed /home/user/a 1048576 ` + digest(big),
		`read_file {"path":"/home/user/a"} allowed /home/user/a 10 `,
		`read_file {"path":"/home/user/missing"} failed`,
		`write_file {"path":"/home/user/.env"} refused`,
		`write_file  failed`, // a form, of which the last was refused:
		`write_file {"path":"/home/user/.env"} refused`,
		`move_file {"paths":["/home/user/a","/home/user/b"]} allowed`,
		`remove_file {"path":"/home/user/b"} allowed`,
		`make_directory {"path":"/home/user/dir2"} allowed`,
	}
	d.boxes.Close(t.Context()) // no answer is under way any more
	var got []string
	for r, err := range d.log.Query(t.Context(), audit.Filter{OldestFirst: true, Sandbox: b.id}) {
		if err != nil {
			t.Fatal(err)
		}
		detail, err := d.log.Show(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains([]string{"write_file", "read_file", "move_file", "remove_file", "make_directory"}, r.Call.Kind) {
			continue
		}
		if r.Call.Actor == "" || r.Call.PolicySHA == "" || r.Call.Isolation == "" {
			t.Errorf("it says not who, by what or where: %+v", r.Call)
		}
		line := r.Call.Kind + " " + string(detail.Params) + " " + string(r.Status)
		if r.Ending != nil && r.Ending.Result != nil {
			for _, f := range r.Ending.Result.Files {
				line += fmt.Sprint(" ", f.Path, " ", f.Size, " ", f.SHA256[:min(8, len(f.SHA256))])
			}
		}
		got = append(got, line)
	}
	if !slices.Equal(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		t.Errorf("recorded is %s", g)
	}
}

// A file is packed for who asks for that and nothing else, not for what HTTP clients
// offer of their own accord, which would leave the record without a digest.
func TestPackedWhenAsked(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	d.raw(t, "POST", "/files?path=a", with(b.to(49983), "Content-Type", "application/octet-stream"), strings.Repeat("x", 1<<20))
	for accept, packed := range map[string]bool{
		"gzip": true, " GZIP ": true, "gzip, identity;q=0": true,
		"gzip, deflate": false, "br, gzip, deflate": false, "gzip, deflate, br, zstd": false, "*": false, "identity": false,
	} {
		status, body, h := d.raw(t, "GET", "/files?path=a", with(b.to(49983), "Accept-Encoding", accept), "")
		if status != 200 || (h.Get("Content-Encoding") == "gzip") != packed || !packed && len(body) != 1<<20 {
			t.Errorf("%q: %d, %d bytes, %v", accept, status, len(body), h)
		}
	}
}

// A form goes on as it came: names, contents, several files, what is no file, packed.
func TestForms(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	_, body := form("plain", "1", "/tmp/absolute", "22", "dir/ümläut \"q\".txt", "333", "", "no name")
	status, answer, _ := d.raw(t, "POST", "/files", with(b.to(49983), "Content-Type", "multipart/form-data; boundary=x"), body)
	if status == http.StatusOK {
		t.Errorf("a file without a name: %s", answer)
	}
	_, body = form("plain", "1", "/tmp/absolute", "22", "dir/ümläut q.txt", "333")
	body = strings.Replace(body, "--x--", "--x\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nignored\r\n--x--", 1)
	status, answer, _ = d.raw(t, "POST", "/files", with(b.to(49983), "Content-Type", "multipart/form-data; boundary=x"), body)
	if got := d.sh(t, b, "cat /home/user/plain /tmp/absolute '/home/user/dir/ümläut q.txt'"); status != 200 || got != "122333" {
		t.Errorf("%d %s: there is %q", status, answer, got)
	}
	var list []struct{ Path string }
	if err := json.Unmarshal(answer, &list); err != nil || len(list) != 3 || list[2].Path != "/home/user/dir/ümläut q.txt" {
		t.Errorf("%s, %v", answer, err)
	}
	multi := with(b.to(49983), "Content-Type", "multipart/form-data; boundary=x")
	_, one := form("one", "1")
	_, none := form()
	_, two := form("same", "1", "./same", "2")
	for name, c := range map[string]struct {
		url, body string
		status    int
		says      string
	}{
		"for a path":           {"/files?path=~/chosen", one, 200, `"path":"/home/user/chosen"`},
		"two for a path":       {"/files?path=chosen", two, 400, "more than one file"},
		"one path twice":       {"/files", two, 400, "only the first"},
		"without files":        {"/files", none, 200, "[]"},
		"none for a path":      {"/files?path=empty", none, 200, "[]"},
		"for a file of root's": {"/files?path=/etc/new", one, 403, ""},
	} {
		if status, answer, _ := d.raw(t, "POST", c.url, multi, c.body); status != c.status || !strings.Contains(string(answer), c.says) {
			t.Errorf("%s: %d %s, want %d and %q", name, status, answer, c.status, c.says)
		}
	}
	if got := d.sh(t, b, "cd /home/user; cat chosen same; ls empty /etc/new 2>/dev/null"); got != "11" {
		t.Errorf("there is %q", got)
	}
	for name, cut := range map[string]string{"cut off": body[:strings.Index(body, "333")+1], "no form": "x"} {
		if status, answer, _ := d.raw(t, "POST", "/files", with(b.to(49983), "Content-Type", "multipart/form-data; boundary=x"), cut); status == 200 {
			t.Errorf("%s: %s", name, answer)
		}
	}
}
