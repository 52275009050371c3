// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/attack/probe"
)

func TestTries(t *testing.T) {
	var tr probeLog
	for _, part := range []string{
		"noise\n", `{"case":"F01","what":"a"`, `,"got":true}` + "\n", strings.Repeat("x", longestLine+1), "\n", `{"case":"F0`, `1","what":"b"}` + "\n{}\n",
	} {
		if n, err := tr.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	got := tr.Of("F01")
	if len(got) != 2 || got[0] != (probe.Try{Case: "F01", What: "a", Got: true}) || got[1].What != "b" {
		t.Errorf("%+v", got)
	}
	select {
	case <-tr.Said("F01"):
	default:
		t.Error("nobody was told of F01")
	}
	select {
	case <-tr.Said("F02"):
		t.Error("F02 was said")
	default:
	}
}

// What comes out of a sandbox may be anything, in any pieces.
func FuzzTries(f *testing.F) {
	f.Add([]byte(`{"case":"F01","what":"open","got":true,"found":"x"}`+"\n"), 3)
	f.Add([]byte("{\"case\":\"\x00\"}\n\n{\n"), 1)
	f.Add(bytes.Repeat([]byte(`{"case":"a"}`+"\n"), 100), 7)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		var whole, pieces probeLog
		_, _ = whole.Write(data)
		cut = max(1, cut%64)
		for rest := data; len(rest) > 0; rest = rest[min(cut, len(rest)):] {
			_, _ = pieces.Write(rest[:min(cut, len(rest))])
		}
		if len(whole.all) != len(pieces.all) || whole.bytes != int64(len(data)) || pieces.bytes != whole.bytes {
			t.Fatalf("%d tries at once, %d in pieces", len(whole.all), len(pieces.all))
		}
		for i, one := range whole.all {
			if one != pieces.all[i] {
				t.Errorf("%+v and %+v", one, pieces.all[i])
			}
			if one.Case == "" || len(one.What) > maxText || len(one.Error) > maxText || len(one.Found) > 4*longestLine {
				t.Errorf("%+v is out of bounds", one)
			}
		}
		if len(whole.all) > maxTries || len(whole.line) > longestLine {
			t.Error("more was kept than may be")
		}
	})
}
