// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/v1"
	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/approval/approvaltest"
	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/sandbox"
)

// A call is asked about, an approver answers with their own client, and the same
// call runs by its token.
func TestQuestions(t *testing.T) {
	c, s := dial(t, "version: 1\ncommands: {ask: [\"echo *\"]}\napprovals: {channels: [web]}\n")
	ada, err := client.New(client.Options{URL: s.URL, Key: approvaltest.Enroll(t, approvaltest.Store(t, s.Approvals))})
	if err != nil {
		t.Fatal(err)
	}
	defer ada.Close()
	w := client.Run{Exec: client.Exec{Command: []string{"echo", "hello"}, Resumable: true}}
	_, err = c.Run(t.Context(), w)
	var waits *client.Error
	if !errors.As(err, &waits) || waits.Approval == nil || waits.Approval.URL == "" {
		t.Fatal(err)
	}
	if _, _, err := c.Questions(t.Context(), client.QuestionFilter{}); !errors.Is(err, sandbox.ErrDenied) {
		t.Error("a key lists what waits:", err)
	}
	list, next, err := ada.Questions(t.Context(), client.QuestionFilter{States: []string{"pending", "approved"}, Limit: 5, Wait: time.Second})
	if err != nil || next != "" || len(list) != 1 || list[0].ID != waits.Approval.ID || list[0].View != nil {
		t.Fatal(list, next, err)
	}
	q, err := ada.Question(t.Context(), list[0].ID)
	if err != nil || q.View == nil || len(q.View.Fields) == 0 {
		t.Fatal(q, err)
	}
	if _, err := ada.Question(t.Context(), "../sandboxes"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
	if q, err = ada.Approve(t.Context(), q.ID, q.Digest); err != nil || q.State != "approved" || q.Channel != "web" {
		t.Error(q, err)
	}
	w.Approval = waits.Approval.Token
	if r, err := c.Run(t.Context(), w); err != nil || string(r.Stdout) != "hello\n" {
		t.Error(r, err)
	}
	w.Approval = ""
	if _, err = c.Run(t.Context(), w); !errors.As(err, &waits) {
		t.Fatal(err)
	}
	if q, err = ada.Deny(t.Context(), waits.Approval.ID, "no"); err != nil || q.State != "denied" || q.Note != "no" {
		t.Error(q, err)
	}
	for _, pair := range [][2]reflect.Type{{reflect.TypeFor[v1.Question](), reflect.TypeFor[client.Question]()}, {reflect.TypeFor[approval.View](), reflect.TypeFor[client.View]()}} {
		if a, b := words(pair[0]), words(pair[1]); a != b {
			t.Errorf("%s has %s, and the client's %s", pair[0], a, b)
		}
	}
}
