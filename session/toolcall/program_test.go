// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"bytes"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// An answer that cannot hold all of a stream has its beginning and its end, where errors are
// told, and says where which bytes are missing. All of it is passed on.
func TestProgramOutputKeepsBothEnds(t *testing.T) {
	var passed bytes.Buffer
	out, errOut := newTee(&passed), newTee(nil)
	text := "first\n" + strings.Repeat("middle\n", maxAnswered/7) + "last: the error\n"
	for part := text; part != ""; part = part[min(len(part), 1000):] {
		if _, err := out.Write([]byte(part[:min(len(part), 1000)])); err != nil {
			t.Fatal(err)
		}
	}
	errOut.Write([]byte("short"))
	got := programOutput(&sandbox.Result{Status: sandbox.StatusError}, out, errOut)
	kept, _ := got["stdout"].(string)
	cut, at := got["truncated"].(map[string]int64), got["truncated_at"].(map[string]int64)
	if !strings.HasPrefix(kept, "first\n") || !strings.HasSuffix(kept, "last: the error\n") || len(kept) > maxAnswered ||
		int64(len(kept))+cut["stdout"] != int64(len(text)) || kept[:at["stdout"]] != text[:at["stdout"]] || len(cut) != 1 || len(at) != 1 {
		t.Errorf("%d bytes, %v cut after %v", len(kept), cut, at)
	}
	if got["stderr"] != "short" || passed.String() != text {
		t.Errorf("%v, and %d bytes were passed on", got["stderr"], passed.Len())
	}
}
