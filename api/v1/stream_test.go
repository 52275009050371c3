// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Text that a pipe cut inside characters is text in events; bytes that are none come as
// they are, and at the end.
func TestEventsOfCutText(t *testing.T) {
	w := httptest.NewRecorder()
	o := &events{w: w, control: http.NewResponseController(w), left: map[string][]byte{}}
	for _, p := range []string{"a\xe2", "\x98", "\x95b", "\xff", "\xf0\x9f"} {
		if n, err := (streamOf{o, "stdout"}).Write([]byte(p)); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := (streamOf{o, "stderr"}).Write([]byte("\xe2\x98")); err != nil {
		t.Fatal(err)
	}
	o.end(func() {})
	var got []string
	for _, line := range strings.Split(w.Body.String(), "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			got = append(got, data)
		}
	}
	want := `{"stream":"stdout","text":"a"} {"stream":"stdout","text":"☕b"} {"stream":"stdout","base64":"/w=="} {"stream":"stdout","base64":"8J8="} {"stream":"stderr","base64":"4pg="}`
	if strings.Join(got, " ") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, "\n"), want)
	}
}
