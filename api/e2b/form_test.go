// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"io"
	"net/http/httptest"
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
