// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxSignedPath bounds the path of a signed URL, which is hashed once for each
// sandbox that could be meant.
const maxSignedPath = 4096

// signed is a URL of /files that carries its own right: made with a sandbox's
// access token by a client that had it.
type signed struct {
	path, operation, user, expiration, signature string
}

// signedURL reads the signature of a request for /files; ok is false where it
// has none.
func signedURL(method string, q url.Values) (s signed, ok bool) {
	s = signed{path: q.Get("path"), user: q.Get("username"), expiration: q.Get("signature_expiration"), signature: q.Get("signature"), operation: "read"}
	if method == http.MethodPost {
		s.operation = "write"
	}
	return s, s.signature != ""
}

// by says whether the signature was made with token. The hash is E2B's own; a
// message authentication code would be the better choice. Its parts are joined
// by colons, which a path may have too; a user may not, so that the same text
// cannot be read as another path and user.
func (s signed) by(token string) bool {
	if token == "" || len(s.path) > maxSignedPath || len(s.user) > 256 || len(s.expiration) > 20 || strings.Contains(s.user, ":") {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(sign(s, token)), []byte(s.signature)) == 1
}

// sign is the signature of what s says.
func sign(s signed, token string) string {
	text := s.path + ":" + s.operation + ":" + s.user + ":" + token
	if s.expiration != "" {
		text += ":" + s.expiration
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// expired says whether a good signature is of no use any more. Its wording is
// E2B's, which clients compare.
func (s signed) expired(now time.Time) error {
	if s.expiration == "" {
		return nil
	}
	at, err := strconv.ParseInt(s.expiration, 10, 64)
	if err != nil || now.Unix() > at {
		return &apiError{http.StatusUnauthorized, "signature is already expired"}
	}
	return nil
}
