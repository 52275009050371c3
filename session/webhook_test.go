// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// A webhook hears of a question while it waits, can tell by the signature who
// says so, and cannot answer it.
func TestWebhook(t *testing.T) {
	const secret = "0123456789abcdef0123"
	heard := make(chan string, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m := hmac.New(sha256.New, []byte(secret))
		m.Write([]byte(r.Header.Get("Caisson-Timestamp") + "." + string(body)))
		if r.Header.Get("Caisson-Signature") != "v1="+hex.EncodeToString(m.Sum(nil)) {
			t.Errorf("the signature %s is not right", r.Header.Get("Caisson-Signature"))
		}
		var got struct {
			Event   string
			Request approval.Request
		}
		if err := json.Unmarshal(body, &got); err != nil || got.Event != "approval.asked" || got.Request.State != approval.Pending || got.Request.URL != "https://here/"+got.Request.ID {
			t.Errorf("%v: %s", err, body)
		}
		if strings.Contains(string(body), "apt_") || strings.Contains(string(body), secret) {
			t.Errorf("it is told a secret: %s", body)
		}
		w.Write([]byte(`{"approved": true}`))
		heard <- got.Request.ID
	}))
	defer hook.Close()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newAskBench(t, strings.Replace(asksProg, "channels: [terminal, cli]", "channels: [cli, web], webhook: {url: \""+hook.URL+"\", secret: \"file:"+key+"\"}", 1))
	who := b.enroll(t)
	done := make(chan *sandbox.Result, 1)
	go func() {
		res, _ := b.Do(t.Context(), asked(t, nil), IO{})
		done <- res
	}()
	id := <-heard
	if b.d.ran != 0 {
		t.Error("it ran by what a webhook answers")
	}
	if _, err := b.approvals.Answer(t.Context(), who, id, question.Answer{Note: "no"}); err != nil {
		t.Error(err)
	}
	if res := <-done; res == nil || res.Status != sandbox.StatusDenied {
		t.Errorf("%+v", res)
	}
}
