// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
)

// FuzzForm: whatever a client sends as a form of files, the agent reads those that were
// allowed, under the paths that were, with what was counted, and no other.
func FuzzForm(f *testing.F) {
	const file = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=%\r\n\r\ncontent\r\n"
	for _, name := range []string{`"a"`, `"../a b"`, `"a\"b"`, `"a\\b"`, `a`, `"a\xff"`, `"é"`, `"=?utf-8?q?b?="`, `"a"; filename*=utf-8''b`, `"a"; name="other"`, `""`, "\"a\nb\"", `"/etc/x"; filename="/tmp/y"`} {
		f.Add("multipart/form-data; boundary=x", "", strings.Replace(file, "%", name, 1)+"--x--\r\n")
	}
	f.Add("multipart/mixed; boundary=x", "identity", strings.Replace(file, "%", `"a"`, 1)+strings.Replace(file, "%", `"b"`, 1)+"--x--")
	f.Add("multipart/form-data", "gzip", "")
	f.Add("text/plain", "", "x")
	f.Fuzz(func(t *testing.T, kind, encoding, body string) {
		r := httptest.NewRequest("POST", "/files", nil)
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Content-Encoding", encoding)
		form, err := openForm(r, strings.NewReader(body))
		if form == nil || err != nil {
			return
		}
		refused := errors.New("refused")
		var allowed []string
		u := &formUpload{allow: func(name string) (string, error) {
			if strings.Contains(name, "refuse") {
				return "", refused
			}
			// Paths have no NUL; what else is in them the policy leaves.
			p := path.Join("/home/user", strings.ReplaceAll(name, "\x00", ""))
			allowed = append(allowed, p)
			return p, nil
		}}
		var passed bytes.Buffer
		out := multipart.NewWriter(&passed)
		if err := u.pass(form, out); err != nil {
			return // the agent hears of a body that broke off
		}
		if u.refused != nil {
			t.Fatalf("%v was passed over", u.refused)
		}
		again := multipart.NewReader(&passed, out.Boundary())
		for i := 0; ; i++ {
			part, err := again.NextPart()
			if err == io.EOF && i == len(allowed) && i == len(u.files) {
				return
			}
			if err != nil || i >= len(allowed) {
				t.Fatalf("%d files are allowed, %d noted, the agent reads %d: %v", len(allowed), len(u.files), i, err)
			}
			_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition")) // as guest/agent does
			content, rerr := io.ReadAll(part)
			if err != nil || rerr != nil || params["name"] != "file" || params["filename"] != allowed[i] || u.files[i].Path != allowed[i] || u.files[i].Size != int64(len(content)) {
				t.Fatalf("%q (%+v) is allowed, the agent reads %q of %d bytes: %v, %v", allowed[i], u.files[i], params["filename"], len(content), err, rerr)
			}
		}
	})
}
