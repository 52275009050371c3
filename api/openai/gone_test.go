// SPDX-License-Identifier: Apache-2.0

package openai_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/openai"
	"github.com/caisson-run/caisson/session/persistent"
)

// until is a context that ends when done is closed.
type until struct {
	context.Context
	done <-chan struct{}
}

func (u until) Done() <-chan struct{} { return u.done }

func (u until) Err() error {
	select {
	case <-u.done:
		return context.Canceled
	default:
		return nil
	}
}

// unsent is an answer that does not reach its client.
type unsent struct{ *httptest.ResponseRecorder }

func (unsent) FlushError() error { return errors.New("broken pipe") }

// A container ends whose client has gone before it was told of it: no other client
// knows its ID.
func TestNobodyIsTold(t *testing.T) {
	d := newFrontend(t, "")
	id := d.create(t, `{"name":"first"}`)
	file := d.upload(t, id, "in.txt", "hello")["id"].(string)
	_, owner, err := d.Sandboxes.Find(t.Context(), openai.SandboxOf(id))
	if err != nil {
		t.Fatal(err)
	}
	// made is closed when the next sandbox is there.
	made := func() context.Context {
		_, fresh := d.Sandboxes.Events(owner, 0)
		return until{context.Background(), fresh}
	}
	ask := func(ctx context.Context, w http.ResponseWriter, body string) {
		r := httptest.NewRequestWithContext(ctx, "POST", "/v1/containers", strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Authorization", "Bearer "+d.Key)
		r.Header.Set("Content-Type", "application/json")
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				panic(v)
			}
		}()
		d.Handler.ServeHTTP(w, r)
	}
	for range 5 { // who has gone may still have a lock, by chance
		ask(made(), httptest.NewRecorder(), `{"name":"filled","file_ids":["`+file+`"]}`)
	}
	ask(made(), httptest.NewRecorder(), `{"name":"empty"}`)
	ask(context.Background(), unsent{httptest.NewRecorder()}, `{"name":"unsent"}`)
	if got := d.listed(t, "/v1/containers", "name"); !slices.Equal(got, []string{"first"}) {
		t.Errorf("there are %v", got)
	}
	events, _ := d.Sandboxes.Events(owner, 0)
	if n := len(slices.DeleteFunc(events, func(e persistent.Event) bool { return e.Kind != "ended" })); n != 7 {
		t.Errorf("%d were made and have ended", n)
	}
}
