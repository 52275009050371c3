// SPDX-License-Identifier: Apache-2.0

package question

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/network"
)

// The headers of a message to a webhook. The signature is "v1=" and the hex digits
// of HMAC-SHA256, by the webhook's secret, over the time, a dot and the body.
const (
	webhookTime      = "Caisson-Timestamp" // seconds since 1970
	webhookSignature = "Caisson-Signature"
)

// webhookTimeout is how long a webhook may take.
const webhookTimeout = 10 * time.Second

// shortestWebhookSecret is how many bytes sign at least.
const shortestWebhookSecret = 16

// tellWebhook tells a webhook of a question, once. It follows no redirect, takes
// no proxy, and what it is answered with is not looked at but for the status.
func tellWebhook(ctx context.Context, w policy.Webhook, r *approval.Request, now time.Time) error {
	failed := func(problem string, cause error) error {
		return &sandbox.Error{Op: "webhook " + w.URL, Kind: sandbox.ErrUnavailable, Problem: problem, Cause: cause, Hint: "approvers see it with caisson approvals ls"}
	}
	secret, err := network.ReadSecret(w.Secret, nil)
	if err == nil && len(secret) < shortestWebhookSecret {
		err = fmt.Errorf("it is shorter than %d bytes", shortestWebhookSecret)
	}
	if err != nil {
		return failed("its secret cannot be used", err)
	}
	body, err := json.Marshal(map[string]any{"event": "approval.asked", "request": r})
	if err != nil {
		return failed("the message cannot be written", err)
	}
	ctx, stop := context.WithTimeout(ctx, webhookTimeout)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return failed("the message cannot be sent", err)
	}
	at := strconv.FormatInt(now.Unix(), 10)
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(at + "."))
	m.Write(body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(webhookTime, at)
	req.Header.Set(webhookSignature, "v1="+hex.EncodeToString(m.Sum(nil)))
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return failed("it was not reached", err)
	}
	resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return failed("it did not take the message", errors.New(resp.Status))
	}
	return nil
}
