// SPDX-License-Identifier: Apache-2.0

package openai_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/api/openai"
)

func TestMain(m *testing.M) {
	apitest.Init()
	os.Exit(m.Run())
}

type frontend struct{ *apitest.Server }

func newFrontend(t *testing.T, policy string) *frontend { return &frontend{apitest.Start(t, policy)} }

// ask sends one request.
func (d *frontend) ask(t *testing.T, method, path, body string, header ...string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.Key)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if req.Header.Del(header[i]); header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	v := map[string]any{}
	if json.Unmarshal(b, &v) != nil {
		v["raw"] = string(b)
	}
	return resp.StatusCode, v
}

func (d *frontend) want(t *testing.T, status int, method, path, body string, header ...string) map[string]any {
	t.Helper()
	have, v := d.ask(t, method, path, body, header...)
	if have != status {
		t.Fatalf("%s %s: %d %v, want %d", method, path, have, v, status)
	}
	return v
}

func (d *frontend) create(t *testing.T, body string) string {
	t.Helper()
	return d.want(t, 200, "POST", "/v1/containers", body)["id"].(string)
}

// form is a body with the given fields, each name, file name, content.
func form(t *testing.T, fields ...[3]string) (body, kind string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range fields {
		add := func() (io.Writer, error) { return w.CreateFormFile(f[0], f[1]) }
		if f[1] == "" {
			add = func() (io.Writer, error) { return w.CreateFormField(f[0]) }
		}
		part, err := add()
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, f[2])
	}
	w.Close()
	return b.String(), w.FormDataContentType()
}

func (d *frontend) upload(t *testing.T, id, name, text string) map[string]any {
	t.Helper()
	body, kind := form(t, [3]string{"file", name, text})
	return d.want(t, 200, "POST", "/v1/containers/"+id+"/files", body, "Content-Type", kind)
}

func (d *frontend) exec(t *testing.T, id, line string) {
	t.Helper()
	q, _ := json.Marshal(map[string]any{"shell": line})
	if a := d.want(t, 200, "POST", "/v1/sandboxes/"+openai.SandboxOf(id)+"/exec", string(q)); a["status"] != "success" || a["exit_code"] != 0.0 {
		t.Fatalf("%s: %v", line, a)
	}
}

func (d *frontend) listed(t *testing.T, path, field string) []string {
	t.Helper()
	var all []string
	for _, v := range d.want(t, 200, "GET", path, "")["data"].([]any) {
		all = append(all, v.(map[string]any)[field].(string))
	}
	return all
}

func TestContainer(t *testing.T) {
	d := newFrontend(t, "")
	c := d.want(t, 200, "POST", "/v1/containers", `{"name":"one","expires_after":{"anchor":"last_active_at","minutes":7},"file_ids":null}`)
	id := c["id"].(string)
	if c["object"] != "container" || c["status"] != "running" || c["name"] != "one" || c["created_at"].(float64) < 1e9 || c["last_active_at"].(float64) < c["created_at"].(float64)-1 ||
		c["expires_after"].(map[string]any)["minutes"] != 7.0 || c["network_policy"].(map[string]any)["type"] != "disabled" {
		t.Errorf("%v", c)
	}
	if again := d.want(t, 200, "GET", "/v1/containers/"+id, ""); again["id"] != id || again["created_at"] != c["created_at"] {
		t.Errorf("%v", again)
	}
	if del := d.want(t, 200, "DELETE", "/v1/containers/"+id, ""); del["deleted"] != true || del["object"] != "container.deleted" || del["id"] != id {
		t.Errorf("%v", del)
	}
	gone := d.want(t, 404, "GET", "/v1/containers/"+id, "")["error"].(map[string]any)
	if !strings.Contains(gone["message"].(string), "killed") || gone["type"] != "invalid_request_error" {
		t.Errorf("%v", gone)
	}
}

// Pages hold together, also for who ends what is on them.
func TestContainerPages(t *testing.T) {
	d := newFrontend(t, "")
	d.want(t, 201, "POST", "/v1/sandboxes", "{}") // which is no container
	var made []string
	for _, name := range []string{"a", "b", "a"} {
		made = append(made, d.create(t, `{"name":"`+name+`"}`))
	}
	if got := d.listed(t, "/v1/containers?order=asc", "id"); !slices.Equal(got, made) {
		t.Errorf("%v, want %v", got, made)
	}
	if got := d.listed(t, "/v1/containers?name=a", "id"); !slices.Equal(got, []string{made[2], made[0]}) {
		t.Errorf("%v", got)
	}
	page := d.want(t, 200, "GET", "/v1/containers?limit=2", "")
	if page["has_more"] != true || page["first_id"] != made[2] || page["last_id"] != made[1] {
		t.Errorf("%v", page)
	}
	d.want(t, 200, "DELETE", "/v1/containers/"+made[1], "")
	page = d.want(t, 200, "GET", "/v1/containers?limit=2&after="+made[1], "")
	if page["has_more"] != false || page["first_id"] != made[0] || page["last_id"] != made[0] {
		t.Errorf("%v", page)
	}
	if got := d.listed(t, "/v1/containers?order=asc&after="+made[1], "id"); !slices.Equal(got, made[2:]) {
		t.Errorf("%v", got)
	}
}

func TestFiles(t *testing.T) {
	d := newFrontend(t, "")
	id := d.create(t, `{"name":"one"}`)
	at := "/v1/containers/" + id + "/files"
	f := d.upload(t, id, "dir/in.txt", "hello")
	if f["path"] != "/mnt/data/in.txt" || f["bytes"] != 5.0 || f["source"] != "user" || f["container_id"] != id || f["object"] != "container.file" {
		t.Fatalf("%v", f)
	}
	file := at + "/" + f["id"].(string)
	d.exec(t, id, "mkdir /mnt/data/sub; tr a-z A-Z < /mnt/data/in.txt > '/mnt/data/sub/ö ut'; ln -s /etc/passwd /mnt/data/link; mkfifo /mnt/data/pipe; touch -d '1 hour ago' /mnt/data/in.txt")
	if got := d.listed(t, at, "path"); !slices.Equal(got, []string{"/mnt/data/sub/ö ut", "/mnt/data/in.txt"}) {
		t.Errorf("%v", got)
	}
	if got := d.listed(t, at+"?order=asc", "source"); !slices.Equal(got, []string{"user", "assistant"}) {
		t.Errorf("%v", got)
	}
	out := d.listed(t, at, "id")[0]
	if got := d.want(t, 200, "GET", at+"/"+out+"/content", ""); got["raw"] != "HELLO" {
		t.Errorf("%v", got)
	}
	link := "/cfile_" + openai.SandboxOf(id) + "_" + openai.Encode("link")
	d.want(t, 404, "GET", at+link, "")
	d.want(t, 404, "GET", at+link+"/content", "")
	if got := d.want(t, 206, "GET", file+"/content", "", "Range", "bytes=1-2"); got["raw"] != "el" {
		t.Errorf("%v", got)
	}

	// One container's file goes to another by its ID.
	second := d.create(t, `{"name":"two","file_ids":["`+f["id"].(string)+`"]}`)
	if got := d.listed(t, "/v1/containers/"+second+"/files", "path"); !slices.Equal(got, []string{"/mnt/data/in.txt"}) {
		t.Errorf("%v", got)
	}
	copied := d.want(t, 200, "POST", "/v1/containers/"+second+"/files", `{"file_id":"`+out+`"}`)
	if copied["path"] != "/mnt/data/ö ut" || copied["bytes"] != 5.0 || copied["container_id"] != second {
		t.Errorf("%v", copied)
	}
	body, kind := form(t, [3]string{"file_id", "", f["id"].(string)})
	if v := d.want(t, 200, "POST", "/v1/containers/"+second+"/files", body, "Content-Type", kind); v["path"] != "/mnt/data/in.txt" {
		t.Errorf("%v", v)
	}

	page := d.want(t, 200, "GET", at+"?limit=1", "")
	if page["has_more"] != true || page["last_id"] != out {
		t.Errorf("%v", page)
	}
	if del := d.want(t, 200, "DELETE", at+"/"+out, ""); del["deleted"] != true || del["object"] != "container.file.deleted" {
		t.Errorf("%v", del)
	}
	d.want(t, 404, "GET", at+"/"+out, "")
	if got := d.listed(t, at+"?limit=1&after="+out, "path"); !slices.Equal(got, []string{"/mnt/data/in.txt"}) {
		t.Errorf("behind a file that is gone: %v", got)
	}
}

// A file is there whole, or not at all: a form that ends early, or that has more
// than it may, leaves what was there before.
func TestUploadIsWholeOrNothing(t *testing.T) {
	d := newFrontend(t, "")
	id := d.create(t, `{"name":"one"}`)
	at := "/v1/containers/" + id + "/files"
	f := d.upload(t, id, "x", "old")["id"].(string)
	body, kind := form(t, [3]string{"file", "x", "new"}, [3]string{"purpose", "", "assistants"})
	if _, v := d.ask(t, "POST", at, body, "Content-Type", kind); !strings.Contains(v["error"].(map[string]any)["message"].(string), "more than one field") {
		t.Errorf("%v", v)
	}
	body, kind = form(t, [3]string{"file", "x", "new"})
	if status, v := d.ask(t, "POST", at, strings.TrimSuffix(body, "--\r\n"), "Content-Type", kind); status != 400 {
		t.Errorf("%d %v", status, v)
	}
	if got := d.want(t, 200, "GET", at+"/"+f+"/content", ""); got["raw"] != "old" {
		t.Errorf("%v", got)
	}
	d.exec(t, id, "test $(ls -A /mnt/data | wc -l) = 1")
}

// A container has what its key's policy gives, and only that.
func TestPolicy(t *testing.T) {
	d := newFrontend(t, "version: 1\nlimits: {memory: 2GiB}\nnetwork: {allow: [example.com]}\n")
	c := d.want(t, 200, "POST", "/v1/containers", `{"name":"one","memory_limit":"1g","network_policy":{"type":"disabled"}}`)
	b := d.want(t, 200, "GET", "/v1/sandboxes/"+openai.SandboxOf(c["id"].(string)), "")
	if b["limits"].(map[string]any)["memory"] != float64(1<<30) || b["network"] != nil || c["memory_limit"] != "1g" {
		t.Errorf("%v %v", b, c)
	}
	for body, says := range map[string]string{
		`{"name":"x","memory_limit":"4g"}`: "p.yaml:2",
		`{"name":"x","network_policy":{"type":"allowlist","allowed_domains":["evil.example"]}}`:           "p.yaml:3",
		`{"name":"x","network_policy":{"type":"allowlist","allowed_domains":["example.com","internet"]}}`: "p.yaml:3",
	} {
		v := d.want(t, 403, "POST", "/v1/containers", body)["error"].(map[string]any)
		if !strings.Contains(v["message"].(string), says) || v["type"] != "permission_error" || v["code"] != "denied_by_policy" {
			t.Errorf("%s: %v", body, v)
		}
	}
	// The least that the protocol has is more than the default: the refusal has the line to write.
	for _, text := range []string{"", "version: 1\n"} {
		silent := newFrontend(t, text)
		v := silent.want(t, 403, "POST", "/v1/containers", `{"name":"x","memory_limit":"1g"}`)["error"].(map[string]any)
		if !strings.Contains(v["message"].(string), "limits: {memory: 1GiB}") {
			t.Errorf("under %q: %v", text, v)
		}
	}
	only := newFrontend(t, "version: 1\nfiles: {writable: [/home/user]}\n")
	if v := only.want(t, 403, "POST", "/v1/containers", `{"name":"x"}`)["error"].(map[string]any); !strings.Contains(v["message"].(string), "/mnt/data") {
		t.Errorf("%v", v)
	}
}

// Another key's containers and files are ones that do not exist.
func TestAnotherKey(t *testing.T) {
	d := newFrontend(t, "")
	id := d.create(t, `{"name":"one"}`)
	f := d.upload(t, id, "x", "secret")["id"].(string)
	mine := d.Key
	d.Key = d.Other
	own := d.create(t, `{"name":"two"}`)
	box := "/v1/containers/"
	for _, c := range [][2]string{
		{"GET", box + id}, {"DELETE", box + id}, {"GET", box + id + "/files"}, {"GET", box + id + "/files/" + f},
		{"GET", box + id + "/files/" + f + "/content"}, {"DELETE", box + id + "/files/" + f},
		{"GET", box + own + "/files/" + f}, {"GET", box + own + "/files/" + f + "/content"}, {"DELETE", box + own + "/files/" + f},
	} {
		d.want(t, 404, c[0], c[1], "")
	}
	d.want(t, 404, "POST", box, `{"name":"x"}`) // nothing is there with a slash behind it
	d.want(t, 404, "POST", "/v1/containers", `{"name":"x","file_ids":["`+f+`"]}`)
	d.want(t, 404, "POST", box+own+"/files", `{"file_id":"`+f+`"}`)
	body, kind := form(t, [3]string{"file", "x", "evil"})
	d.want(t, 404, "POST", box+id+"/files", body, "Content-Type", kind)
	if got := d.listed(t, "/v1/containers", "id"); !slices.Equal(got, []string{own}) {
		t.Errorf("%v", got)
	}
	d.Key = mine
	if got := d.want(t, 200, "GET", box+id+"/files/"+f+"/content", ""); got["raw"] != "secret" {
		t.Errorf("%v", got)
	}
}

func TestRefused(t *testing.T) {
	d := newFrontend(t, "")
	id := d.create(t, `{"name":"one"}`)
	_, own := d.ask(t, "POST", "/v1/sandboxes", "{}")
	plain := own["id"].(string) // a sandbox, no container
	long := strings.Repeat("x", 2<<20)
	box := "/v1/containers/" + id
	evil := func(rel string) string { // a file's ID with a path of the client's choice
		return "cfile_" + openai.SandboxOf(id) + "_" + openai.Encode(rel)
	}
	named := func(name string) [2]string {
		body, kind := form(t, [3]string{"file", "NAME", "x"})
		return [2]string{strings.ReplaceAll(body, "NAME", name), kind}
	}
	dots, none := named(".."), named("/")
	two, twoKind := form(t, [3]string{"purpose", "", "x"}, [3]string{"file", "a", "b"})
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		says                     string
	}{
		{"no key", "GET", box, "", []string{"Authorization", ""}, 401, "no key"},
		{"a wrong key", "GET", box, "", []string{"Authorization", "Bearer e2b_" + strings.Repeat("0", 40)}, 401, "not known"},
		{"no key, nowhere", "GET", "/v1/containers/x/y/z", "", []string{"Authorization", ""}, 401, "no key"},
		{"a key as basic", "GET", box, "", []string{"Authorization", "Basic " + d.Key}, 401, "no key"},
		{"a key in the query", "GET", "/v1/containers?key=" + d.Key, "", []string{"Authorization", ""}, 401, "no key"},
		{"another name", "GET", box, "", []string{"Host", "evil.example"}, 421, "evil.example"},
		{"half a port", "GET", box, "", []string{"E2b-Sandbox-Port", "80"}, 400, "E2b-Sandbox-Id"},
		{"nowhere", "GET", box + "/nothing", "", nil, 404, "there is nothing"},
		{"another method", "PUT", box, "{}", nil, 405, "GET, DELETE"},
		{"a sandbox that is none", "GET", "/v1/containers/" + plain, "", nil, 404, "there is none"},
		{"a sandbox as a container", "GET", "/v1/containers/cntr_0000000000000000" + plain, "", nil, 404, "there is none"},
		{"another time", "GET", "/v1/containers/cntr_0000000000000000" + openai.SandboxOf(id), "", nil, 404, "there is none"},
		{"an id that climbs", "GET", "/v1/containers/..%2f..%2fetc", "", nil, 404, ""},
		{"an id with NUL", "GET", "/v1/containers/cntr_%00", "", nil, 404, "there is none"},
		{"a long id", "GET", "/v1/containers/" + strings.Repeat("i", 5000), "", nil, 404, ""},
		{"no JSON", "POST", "/v1/containers", "{", nil, 400, "not JSON"},
		{"no object", "POST", "/v1/containers", "[]", nil, 400, "no JSON object"},
		{"nothing", "POST", "/v1/containers", "", nil, 400, "not JSON"},
		{"a name twice", "POST", "/v1/containers", `{"name":"a","name":"b"}`, nil, 400, "twice"},
		{"plain text", "POST", "/v1/containers", `{"name":"a"}`, []string{"Content-Type", "text/plain"}, 415, "application/json"},
		{"a long body", "POST", "/v1/containers", `{"name":"` + long + `"}`, nil, 413, "too long"},
		{"too many values", "POST", "/v1/containers", `{"name":[` + strings.Repeat("[],", 21_000) + `[]]}`, nil, 413, "more than 20000 values"},
		{"deep", "POST", "/v1/containers", `{"name":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, nil, 400, ""},
		{"no name", "POST", "/v1/containers", `{}`, nil, 400, "name is missing"},
		{"a name that is none", "POST", "/v1/containers", `{"name":7}`, nil, 400, "name"},
		{"a long name", "POST", "/v1/containers", `{"name":"` + strings.Repeat("x", 257) + `"}`, nil, 400, "longer"},
		{"skills", "POST", "/v1/containers", `{"name":"x","skills":[{"type":"skill_reference"}]}`, nil, 400, `"skills" is not carried`},
		{"another field", "POST", "/v1/containers", `{"name":"x","mounts":["/etc"]}`, nil, 400, "mounts"},
		{"another case", "POST", "/v1/containers", `{"Name":"x"}`, nil, 400, "Name"},
		{"secrets", "POST", "/v1/containers", `{"name":"x","network_policy":{"type":"allowlist","allowed_domains":["a.example"],"domain_secrets":[{"domain":"a.example","name":"K","value":"v"}]}}`, nil, 400, "network_policy.domain_secrets"},
		{"no domain", "POST", "/v1/containers", `{"name":"x","network_policy":{"type":"allowlist","allowed_domains":[]}}`, nil, 400, "no domain"},
		{"a network of another kind", "POST", "/v1/containers", `{"name":"x","network_policy":{"type":"open"}}`, nil, 400, "neither"},
		{"a network that is not granted", "POST", "/v1/containers", `{"name":"x","network_policy":{"type":"allowlist","allowed_domains":["a.example"]}}`, nil, 403, ""},
		{"memory of another size", "POST", "/v1/containers", `{"name":"x","memory_limit":"2g"}`, nil, 400, "1g, 4g"},
		{"more memory than is granted", "POST", "/v1/containers", `{"name":"x","memory_limit":"64g"}`, nil, 0, ""},
		{"another anchor", "POST", "/v1/containers", `{"name":"x","expires_after":{"anchor":"created_at","minutes":5}}`, nil, 400, "anchor"},
		{"no minutes", "POST", "/v1/containers", `{"name":"x","expires_after":{"anchor":"last_active_at"}}`, nil, 400, "minutes"},
		{"minutes that are none", "POST", "/v1/containers", `{"name":"x","expires_after":{"anchor":"last_active_at","minutes":1.5}}`, nil, 400, "whole number"},
		{"too many minutes", "POST", "/v1/containers", `{"name":"x","expires_after":{"anchor":"last_active_at","minutes":1441}}`, nil, 400, "1440"},
		{"a file of another store", "POST", "/v1/containers", `{"name":"x","file_ids":["file-abc123"]}`, nil, 400, "no other store"},
		{"a file that is not there", "POST", "/v1/containers", `{"name":"x","file_ids":["` + evil("nothing") + `"]}`, nil, 404, ""},
		{"a directory", "POST", "/v1/containers", `{"name":"x","file_ids":["` + evil("../../tmp") + `"]}`, nil, 400, ""},
		{"a query", "POST", "/v1/containers?x=y", `{"name":"x"}`, nil, 400, "no query"},
		{"a query that is not known", "GET", "/v1/containers?before=x", "", nil, 400, "before"},
		{"a name of files", "GET", box + "/files?name=x", "", nil, 400, "name"},
		{"twice", "GET", "/v1/containers?limit=1&limit=2", "", nil, 400, "more than once"},
		{"limit 0", "GET", "/v1/containers?limit=0", "", nil, 400, "limit"},
		{"limit 101", "GET", box + "/files?limit=101", "", nil, 400, "limit"},
		{"another order", "GET", "/v1/containers?order=up", "", nil, 400, "order"},
		{"after nothing", "GET", "/v1/containers?after=x", "", nil, 400, "after"},
		{"after no file", "GET", box + "/files?after=x", "", nil, 400, "after"},
		{"no file", "POST", box + "/files", `{}`, nil, 400, "neither a file"},
		{"a file that is no text", "POST", box + "/files", `{"file_id":[]}`, nil, 400, "no text"},
		{"a form that is none", "POST", box + "/files", "x", []string{"Content-Type", "multipart/form-data"}, 400, "form"},
		{"a form with nothing", "POST", box + "/files", "--b--\r\n", []string{"Content-Type", "multipart/form-data; boundary=b"}, 400, "no file"},
		{"another field first", "POST", box + "/files", two, []string{"Content-Type", twoKind}, 400, "purpose"},
		{"a file called ..", "POST", box + "/files", dots[0], []string{"Content-Type", dots[1]}, 400, "no name"},
		{"a file without a name", "POST", box + "/files", none[0], []string{"Content-Type", none[1]}, 400, "no name"},
		{"octets", "POST", box + "/files", "x", []string{"Content-Type", "application/octet-stream"}, 415, ""},
		{"a path that climbs", "GET", box + "/files/" + evil("../../etc/passwd"), "", nil, 404, "there is none"},
		{"a path that climbs, to be removed", "DELETE", box + "/files/" + evil("x/../../../tmp"), "", nil, 404, "there is none"},
		{"the directory", "DELETE", box + "/files/" + evil("."), "", nil, 404, "there is none"},
		{"an absolute path", "GET", box + "/files/" + evil("/etc/passwd"), "", nil, 404, "there is none"},
		{"a path with NUL", "GET", box + "/files/" + evil("a\x00b"), "", nil, 404, "there is none"},
		{"no base64", "GET", box + "/files/cfile_" + openai.SandboxOf(id) + "_%21", "", nil, 404, "there is none"},
		{"no file of this one", "GET", box + "/files/" + strings.Replace(evil("x"), openai.SandboxOf(id), plain, 1), "", nil, 404, "there is none"},
	} {
		status, v := d.ask(t, c.method, c.path, c.body, c.header...)
		e, _ := v["error"].(map[string]any)
		message, _ := e["message"].(string)
		if c.status != 0 && status != c.status || status < 400 || status >= 500 || message == "" || e["type"] == "" || !strings.Contains(message, c.says) {
			t.Errorf("%s: %d %v, want %d %q", c.name, status, v, c.status, c.says)
		}
		if len(message) > 2000 {
			t.Errorf("%s: what was sent is sent back", c.name)
		}
	}
	if got := d.listed(t, "/v1/containers", "id"); !slices.Equal(got, []string{id}) {
		t.Errorf("a container is left of a refused request: %v", got)
	}
	d.upload(t, id, url.PathEscape("a b"), "it goes on")
}
