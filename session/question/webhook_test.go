// SPDX-License-Identifier: Apache-2.0

package question

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/policy"
)

// Where it cannot be told, that is said, and nothing is sent unsigned or on.
func TestWebhookFails(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	hook := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer hook.Close()
	t.Setenv("HOOK_SHORT", "short")
	t.Setenv("HOOK_KEY", "0123456789abcdef")
	for what, w := range map[string]policy.Webhook{
		"no secret": {URL: hook.URL, Secret: "env:HOOK_NONE"}, "short": {URL: hook.URL, Secret: "env:HOOK_SHORT"},
		"redirect": {URL: hook.URL, Secret: "env:HOOK_KEY"}, "nobody": {URL: "http://127.0.0.1:1/", Secret: "env:HOOK_KEY"},
	} {
		err := tellWebhook(t.Context(), w, &approval.Request{}, time.Now())
		if err == nil || strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
