// SPDX-License-Identifier: Apache-2.0

package api

import "net/http"

// Refuser is a handler with words of its own for requests that a handler before
// it does not let through. False is that a request's path is not its own.
type Refuser interface {
	Refuse(w http.ResponseWriter, r *http.Request, status int, why string) bool
}
