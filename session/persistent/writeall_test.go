// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"testing"
)

// FuzzFormPart: whatever path was decided, the agent reads that one, and one file.
func FuzzFormPart(f *testing.F) {
	for _, p := range []string{"/a", "/a b", `/a"b`, `/a\b`, "/a\xff", "/é", "/=?utf-8?q?b?=", "/a; filename=/b", "/a\nb", "/a\r\n\r\n--x", "", "~root/x"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		header, err := formPart(p)
		if err != nil {
			return
		}
		var b bytes.Buffer
		out := multipart.NewWriter(&b)
		to, err := out.CreatePart(header)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(to, "content")
		out.Close()
		in := multipart.NewReader(&b, out.Boundary())
		part, err := in.NextPart()
		if err != nil {
			return // the agent refuses it
		}
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition")) // as guest/agent does
		content, rerr := io.ReadAll(part)
		if err != nil || rerr != nil || params["name"] != "file" || params["filename"] != p || string(content) != "content" {
			t.Fatalf("%q is decided, the agent reads %q with %q: %v, %v", p, params["filename"], content, err, rerr)
		}
		if _, err := in.NextPart(); err != io.EOF {
			t.Fatalf("%q makes another part: %v", p, err)
		}
	})
}
