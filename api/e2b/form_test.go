// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"io"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
)

// FuzzForm: whatever a client sends as a form of files, its files are read to their end, and
// hold no more than was sent.
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
		left := len(body)
		for {
			_, file, err := form.next()
			if err != nil {
				return
			}
			b, err := io.ReadAll(io.LimitReader(file, 1<<20))
			if left -= len(b); left < 0 && encoding == "" {
				t.Fatalf("the files have %d bytes more than the form", -left)
			}
			if err != nil {
				return
			}
		}
	})
}

// A form's file names hold what the form says, directories included.
func TestFormFile(t *testing.T) {
	for disposition, want := range map[string]string{
		`form-data; name="file"; filename="a/b.txt"`:      "a/b.txt",
		`form-data; name="file"; filename="/etc/x"`:       "/etc/x",
		`form-data; name=file; filename="a \"b\""`:        `a "b"`,
		`form-data; name="file"; filename*=UTF-8''%C3%BC`: "ü",
		`form-data; name="file"`:                          "",
		`form-data; name="other"; filename="a"`:           "-",
		`nonsense; ;`:                                     "-",
	} {
		name, isFile := formFile(textproto.MIMEHeader{"Content-Disposition": {disposition}})
		if !isFile {
			name = "-"
		}
		if name != want {
			t.Errorf("%s is %q, want %q", disposition, name, want)
		}
	}
}
