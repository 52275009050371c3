// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/interpreter"
)

// answered is a long call whose answer is b.
func answered(b []byte) *long {
	l := &long{client: &Client{meter: newMeter(nil)}, op: "fuzz"}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.answer = &watched{r: iotest.HalfReader(bytes.NewReader(b)), idle: time.Minute, hangUp: l.cancel}
	return l
}

// Whatever a process's stream holds, reading it ends, and an end comes last.
func FuzzProcess(f *testing.F) {
	start := wire.AppendFrame(nil, wire.Started, []byte(`{"pid":3,"terminal":true}`))
	f.Add(append(bytes.Clone(start), wire.AppendFrame(wire.AppendFrame(nil, wire.Stdout, []byte("hi")), wire.Exit, []byte(`{"code":300,"signal":-9}`))...))
	f.Add(append(bytes.Clone(start), 'o', 0, 0, 0, 9))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &Process{stream: answered(b), frames: wire.NewReader(bytes.NewReader(b)), buf: make([]byte, 7)}
		if p.started() != nil {
			return
		}
		for total := 0; ; {
			o, err := p.Next()
			if total += len(o.Data); total > len(b) {
				t.Fatal("more comes out than went in")
			}
			if err == nil {
				continue
			}
			e, over := p.End()
			if over != (err == io.EOF) {
				t.Fatalf("the error %v, the end %v", err, over)
			}
			if over && (e.Code < -1 || e.Code > 255 || e.Signal < 0 || e.Signal > 127) {
				t.Fatalf("it ends with %+v", e)
			}
			return
		}
	})
}

// The same of a watch.
func FuzzWatch(f *testing.F) {
	f.Add(wire.AppendFrame(wire.AppendFrame(nil, 0, []byte(`{"filesystem":{"name":"a","type":"EVENT_TYPE_CREATE","entry":{"size":"3"}}}`)), 2, []byte(`{}`)))
	f.Add(wire.AppendFrame(nil, 2, []byte(`{"error":{"code":"not_found","message":"x"}}`)))
	f.Add([]byte{0, 0, 2, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		w := &Watch{answered(b)}
		for n := 0; ; n++ {
			c, err := w.Next()
			if err != nil {
				return
			}
			if n > len(b) || c.Kind == "" {
				t.Fatalf("change %d is %+v", n, c)
			}
		}
	})
}

// The same of a cell.
func FuzzExecution(f *testing.F) {
	f.Add([]byte("{\"type\":\"started\",\"count\":1}\n{\"type\":\"stdout\",\"text\":\"x\"}\n{\"type\":\"end\",\"end\":{\"status\":\"ok\"}}\n"))
	f.Add([]byte("{\"type\":\"end\",\"end\":{\"status\":\"lost\"}}\n{\"type\":\"alive\"}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := answered(b)
		x := &Execution{stream: l, lines: bufio.NewReader(l.answer)}
		ended := false
		for n := 0; ; n++ {
			e, err := x.Next()
			if err != nil {
				if (err == io.EOF) != ended {
					t.Fatalf("the error %v, the end %v", err, ended)
				}
				return
			}
			if n > len(b) || ended {
				t.Fatalf("event %d is %+v", n, e)
			}
			ended = e.Type == interpreter.End
		}
	})
}
