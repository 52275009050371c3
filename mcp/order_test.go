// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// said is a connection on which everything has been said already.
type said struct {
	sdk.Connection
	messages []string
}

func (s *said) Read(context.Context) (jsonrpc.Message, error) {
	if len(s.messages) == 0 {
		return nil, io.EOF
	}
	m, err := jsonrpc.DecodeMessage([]byte(s.messages[0]))
	s.messages = s.messages[1:]
	return m, err
}

// TestAnswersWait: the answer of a call is not read before what was told of it has been
// heard, and is read without that where nothing was.
func TestAnswersWait(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{}}`
	for name, tale := range map[string][]string{
		"nothing":  {`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`},
		"a log":    {`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`},
		"progress": {`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := &order{}
			c := &orderedConn{Connection: &said{messages: append(tale, answer)}, order: o}
			hear := o.hears(func(context.Context, string, sdk.Request) (sdk.Result, error) { return nil, nil })
			var methods []string
			for range tale {
				m, err := c.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				methods = append(methods, m.(*jsonrpc.Request).Method)
			}
			read := make(chan json.RawMessage, 1)
			go func() {
				m, err := c.Read(t.Context())
				if err != nil {
					t.Error(err)
				}
				read <- m.(*jsonrpc.Response).Result
			}()
			for _, method := range methods {
				synctest.Wait()
				if early := len(read) > 0; early == tells(method) {
					t.Fatalf("%s: the answer is read before: %v", name, early)
				}
				if _, err := hear(t.Context(), method, nil); err != nil {
					t.Fatal(err)
				}
			}
			if got := <-read; string(got) != "{}" {
				t.Errorf("%s: %s", name, got)
			}
			if o.unheard != 0 || o.heard != nil {
				t.Errorf("%s: %+v", name, o)
			}
		})
	}
}

// TestUnheard: what is never heard keeps no answer for long, and not the next one.
func TestUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &order{}
		o.told()
		over, stop := context.WithCancel(t.Context())
		stop()
		o.wait(over)
		began := time.Now()
		o.wait(t.Context())
		o.wait(t.Context())
		if took := time.Since(began); took != hearing || o.unheard != 0 {
			t.Errorf("%v, %d", took, o.unheard)
		}
		if o.done(); o.unheard != 0 {
			t.Error(o.unheard)
		}
	})
}
