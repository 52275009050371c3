// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"strings"
)

// Token is the key that a request comes with, or "": what X-API-Key says, else what
// Authorization says as a bearer token. All frontends look for it here, so that a request
// with two keys is the same key's everywhere; X-API-Key comes first since clients and
// proxies send a token for another server in Authorization beside it.
func Token(h http.Header) string {
	if key := h.Get("X-API-Key"); key != "" {
		return key
	}
	return Bearer(h)
}

// Bearer is the bearer token of a request's Authorization, or "". The scheme's case does
// not matter (RFC 9110 §11.1).
func Bearer(h http.Header) string {
	scheme, token, ok := strings.Cut(h.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}
