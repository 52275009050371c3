// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Question is a call that people are asked about, as approvers see it.
type Question struct {
	ID       string    `json:"id"`
	Actor    string    `json:"actor"`  // who asks
	Digest   string    `json:"digest"` // of all that decides what the call does
	State    string    `json:"state"`  // pending, approved, used, denied, expired, cancelled, void
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
	Ended    time.Time `json:"ended,omitzero"`
	Approver string    `json:"approver,omitempty"`
	Channel  string    `json:"channel,omitempty"`
	Note     string    `json:"note,omitempty"`
	Channels []string  `json:"channels"` // by which an answer counts; Approve and Deny are web
	About    string    `json:"about"`    // why it is asked, on one line
	View     *View     `json:"view,omitempty"`
}

// View is what an approver has to see of a call before they say yes.
type View struct {
	Warnings []string `json:"warnings,omitempty"`
	Fields   []struct {
		Name  string   `json:"name"`
		Lines []string `json:"lines"`
	} `json:"fields"`
}

// QuestionFilter is which questions are listed.
type QuestionFilter struct {
	States []string // pending when there is none
	Limit  int      // of a page: 1 to 100; 0 is 100
	Cursor string
	// Wait is how long to wait for one where there is none; a minute at most.
	Wait time.Duration
}

// Questions lists calls that people are asked about, newest first and without View,
// and returns the cursor of the next page, which is empty on the last one. It
// takes a client with an approver's credential.
func (c *Client) Questions(ctx context.Context, f QuestionFilter) ([]Question, string, error) {
	q := url.Values{}
	if len(f.States) > 0 {
		q.Set("state", strings.Join(f.States, ","))
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	if f.Cursor != "" {
		q.Set("cursor", f.Cursor)
	}
	if f.Wait > 0 {
		q.Set("wait", strconv.FormatFloat(min(f.Wait, time.Minute).Seconds(), 'f', -1, 64))
	}
	var a struct {
		Approvals []Question
		Next      string
	}
	err := c.call(ctx, http.MethodGet, "/approvals", q, nil, &a)
	return a.Approvals, a.Next, err
}

// Question shows one, by its ID or by the beginning of it where only one has that.
func (c *Client) Question(ctx context.Context, id string) (*Question, error) {
	return c.question(ctx, http.MethodGet, id, "", nil)
}

// Approve says yes to what was shown: digest is that of the Question, or 12 digits
// of it and more. A yes is good once, for exactly that call, and for a time.
func (c *Client) Approve(ctx context.Context, id, digest string) (*Question, error) {
	return c.question(ctx, http.MethodPost, id, "/approve", map[string]string{"digest": digest})
}

// Deny says no, which is final. Who asked is told the note.
func (c *Client) Deny(ctx context.Context, id, note string) (*Question, error) {
	return c.question(ctx, http.MethodPost, id, "/deny", map[string]string{"note": note})
}

func (c *Client) question(ctx context.Context, method, id, action string, in any) (*Question, error) {
	if id == "" || strings.Trim(strings.ToLower(id), "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return nil, &sandbox.Error{Op: "approval", Kind: sandbox.ErrNotFound, Problem: "there is none", Hint: "an ID begins with apv_"}
	}
	q := &Question{}
	if err := c.call(ctx, method, "/approvals/"+id+action, nil, in, q); err != nil {
		return nil, err
	}
	return q, nil
}
