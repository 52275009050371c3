// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"net/http"
)

// Operator serves what the operator of a server asks: /healthz and /readyz of everybody,
// /metrics of who has a key. ready says whether sandboxes can be made, and must not block;
// known says whether a token is a key.
func Operator(stats *Stats, ready func() error, known func(ctx context.Context, token string) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if ready() != nil { // which is the operator's to read, in the log
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte("no sandbox was made here yet, or none can be: the log says why\n"))
			return
		}
		w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		token := Token(r.Header)
		if token == "" || known(r.Context(), token) != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			say(w, http.StatusUnauthorized, "metrics are for who has a key: Authorization: Bearer e2b_…")
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		stats.writeTo(w)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		say(w, http.StatusNotFound, "there is nothing at this path; /openapi.json says what there is")
	})
	return mux
}

func say(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, message})
}
