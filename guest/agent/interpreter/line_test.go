// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/caisson-run/caisson/interpreter"
)

// Whatever a kernel writes, reading it ends, and an event is one that a kernel may send.
func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"ready\":{\"version\":\"3\"}}\n{\"id\":\"1\",\"type\":\"stdout\",\"text\":\"x\"}\n{\"id\":\"1\",\"type\":\"end\",\"end\":{\"status\":\"ok\"}}\n"))
	f.Add([]byte("{\"id\":\"1\",\"type\":\"display\",\"result\":{\"main\":true,\"data\":{\"text/plain\":\"\\ud800\"}}}"))
	f.Add([]byte("\n\n{}\nnull\n[]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReaderSize(iotest.HalfReader(bytes.NewReader(b)), 16)
		for range len(b) + 1 {
			line, err := readLine(r, 1<<16)
			if err != nil {
				return
			}
			m, err := parseLine(line)
			if err != nil {
				continue
			}
			switch {
			case m.ready != "":
			case m.event == nil:
				t.Fatalf("%q says nothing", line)
			case m.event.Type == interpreter.Started || m.event.Type == interpreter.Alive:
				t.Fatalf("%q is the agent's to say", line)
			}
			if _, err := json.Marshal(m.event); err != nil {
				t.Fatal(err)
			}
		}
		t.Fatal("there are more lines than bytes")
	})
}

// The same of a shell's answers.
func FuzzShell(f *testing.F) {
	f.Add("ready 5\ngo\nrun\nend 1 3\n")
	f.Fuzz(func(t *testing.T, s string) {
		talk, theirs, err := newBashTalk()
		if err != nil {
			t.Skip(err)
		}
		defer talk.close()
		talk.lines = bufio.NewReader(strings.NewReader(s))
		theirs.Close()
		talk.cell = "1"
		for {
			m, err := talk.next()
			if err != nil {
				return
			}
			if m.ready == "" && m.id != "1" {
				t.Fatalf("%+v", m)
			}
		}
	})
}

// What was said before a kernel asks whether it was heard does not wait for what comes behind.
func TestHeardIsNoEvent(t *testing.T) {
	talk, theirs, err := newLineTalk()
	if err != nil {
		t.Fatal(err)
	}
	defer talk.close()
	for _, f := range theirs {
		defer f.Close()
	}
	const event = `{"id":"1","type":"stdout","text":"x"}` + "\n"
	for after, more := range map[string]bool{"": false, heardYet + "\n": false, heardYet[:3]: false, event: true} {
		talk.lines = bufio.NewReader(strings.NewReader(event + after))
		if m, err := talk.next(); err != nil || m.event == nil || talk.more() != more {
			t.Errorf("before %q: %v, %t", after, err, talk.more())
		}
	}
}

func TestLineIsBounded(t *testing.T) {
	r := bufio.NewReaderSize(strings.NewReader(strings.Repeat("a", 100)+"\n"), 16)
	if _, err := readLine(r, 50); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("%v", err)
	}
}
