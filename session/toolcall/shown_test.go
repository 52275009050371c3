// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"encoding/base64"
	"testing"
)

// What a model reads of the answer to a declared request.
func TestShownHTTP(t *testing.T) {
	png := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\nrest"))
	for want, out := range map[string]map[string]any{
		"[HTTP status 200]\nhello": {"status": 200, "body": "hello", "encoding": "text"},
		"[HTTP status 302; content-type: x/y; location: /z; the body is longer]\n": {"status": 302, "body": "", "encoding": "text", "truncated": true,
			"headers": map[string]any{"content-type": "x/y", "location": "/z", "etag": "1"}},
		"[HTTP status 200; a picture]":                {"status": 200, "body": png, "encoding": "base64"},
		"[HTTP status 500; 3 bytes that are no text]": {"status": 500, "body": "/wAB", "encoding": "base64"},
	} {
		text, picture := (&Answer{Output: out}).Shown()
		if text != want || (picture != nil) != (out["body"] == png) {
			t.Errorf("%q, %v; want %q", text, picture, want)
		}
	}
}
