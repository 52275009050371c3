// SPDX-License-Identifier: Apache-2.0

package login

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/caisson-run/caisson/egress/rule"
)

// answer is a provider's (RFC 6749, 5.1).
type answer struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	ID      string `json:"id_token"`
	Seconds int64  `json:"expires_in"`
	Scope   string `json:"scope"`
}

// expires is when the token ends that came at now; without a word of it, in an hour.
func (a *answer) expires(now time.Time) time.Time {
	if a.Seconds <= 0 {
		return now.Add(time.Hour)
	}
	return now.Add(time.Duration(min(a.Seconds, int64(365*24*time.Hour/time.Second))) * time.Second)
}

const (
	askTime   = 30 * time.Second
	maxAnswer = 256 << 10 // of a provider, in bytes
)

// ask gets a new access token of the provider. Errors have nothing of what it said.
func (l *Login) ask(ctx context.Context, s state) (*answer, error) {
	again := "run " + l.provider.program + " on this host"
	if l.Endpoint == "" || s.refresh == "" {
		return nil, errors.New("it has expired, and caisson cannot renew it; " + again)
	}
	body, err := json.Marshal(l.provider.request(s, l.provider.clientID))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{}
	if l.Client != nil {
		client = *l.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be asked for a new token", req.URL.Host)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s gives no new token (HTTP %d); %s and log in again", req.URL.Host, res.StatusCode, again)
	}
	var a answer
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil || json.Unmarshal(b, &a) != nil || rule.CheckSecretValue(a.Access) != nil {
		return nil, fmt.Errorf("%s gives no token that can be read", req.URL.Host)
	}
	return &a, nil
}
