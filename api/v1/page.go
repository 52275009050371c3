// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/api"
)

// PagePath is where approvers answer in a browser: PagePath + the ID of an
// approval. The page is the same for everybody and has nothing in it. What it
// shows it asks /v1/approvals for, with the credential that is typed into it and
// that it keeps nowhere.
const PagePath = "/approvals/"

//go:embed page.html
var pageText string

// pagePolicy lets the page's own script and style run, and nothing else, ask this
// server, and be in no frame.
var pagePolicy = sync.OnceValue(func() string {
	within := func(tag string) string {
		_, rest, _ := strings.Cut(pageText, "<"+tag+">")
		text, _, _ := strings.Cut(rest, "</"+tag+">")
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + within("script") + "; style-src " + within("style") +
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

// page serves the page on which approvers answer.
func page(w http.ResponseWriter, r *http.Request) {
	w = api.NewTransferWriter(w)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		writeProblem(w, &Problem{Status: http.StatusMethodNotAllowed, Detail: "there is no " + api.Quoted(r.Method) + " here", Hint: "it takes GET"})
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy())
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		w.Write([]byte(pageText))
	}
}
