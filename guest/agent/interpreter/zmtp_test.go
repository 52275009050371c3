// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/caisson-run/caisson/interpreter"
)

// Whatever a kernel sends, reading it ends, and gives no more than came.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{frameMore, 1, 'a', 0, 2, 'b', 'c'})
	f.Add([]byte{frameLong, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{frameCommand, 1, 'x', frameLong, 0, 0, 0, 0, 0, 0, 0, 1, 'y'})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &peer{in: bufio.NewReaderSize(bytes.NewReader(b), 16)}
		for total := 0; ; {
			frames, err := p.receive()
			if err != nil {
				return
			}
			for _, part := range frames {
				total += len(part)
			}
			if total > len(b) || len(frames) == 0 {
				t.Fatalf("%d bytes gave %d", len(b), total)
			}
		}
	})
}

// A message that is not signed with the kernel's key is none, and ends the kernel.
func FuzzJupyterMessage(f *testing.F) {
	parts := []string{`{"msg_type":"stream"}`, `{"msg_id":"1"}`, `{}`, `{"name":"stdout","text":"x"}`}
	f.Add(parts[0], parts[1], parts[3], true)
	f.Add(`{"msg_type":"execute_result"}`, parts[1], `{"data":{"text/plain":"1"}}`, true)
	f.Add(`{"msg_type":"status"}`, parts[1], `{"execution_state":"idle"}`, false)
	f.Fuzz(func(t *testing.T, header, parent, content string, signed bool) {
		talk := &jupyterTalk{key: []byte("key"), version: "1", listens: true, cell: "1"}
		frames := [][]byte{[]byte(header), []byte(parent), []byte("{}"), []byte(content)}
		signature := []byte("00")
		if signed {
			sum := talk.sum(frames)
			signature = []byte(hexOf(sum))
		}
		h, err := talk.read(append([][]byte{[]byte("topic"), []byte(delimiter), signature}, frames...))
		if err != nil {
			return
		}
		if !signed {
			t.Fatal("an unsigned message was taken")
		}
		if talk.take(h) != nil {
			return
		}
		for _, m := range talk.queue {
			if m.id != "1" || m.event == nil || m.event.Type == interpreter.Started {
				t.Fatalf("%+v", m)
			}
		}
	})
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var s []byte
	for _, c := range b {
		s = append(s, digits[c>>4], digits[c&15])
	}
	return string(s)
}

// A peer that speaks otherwise is refused.
func TestGreetRefuses(t *testing.T) {
	for name, says := range map[string]string{
		"nothing":     "",
		"HTTP":        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\nX: yyyyyyyyyyyyyyy\r\n\r\n",
		"no version":  "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x01" + string(make([]byte, 53)),
		"no security": "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x00CURVE" + string(make([]byte, 47)),
	} {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		go func() { io.WriteString(theirs, says); theirs.Close() }()
		if _, err := greet(ours, "DEALER"); err == nil || name != "nothing" && !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
