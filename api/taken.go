// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"net/http"
)

// Taken sends what was written of an answer, and says whether the client's side took it:
// false is that it has not got all of it. That is not asked of its context, which ends,
// too, for who has read the answer and hung up.
func Taken(w http.ResponseWriter) bool {
	err := http.NewResponseController(w).Flush()
	return err == nil || errors.Is(err, http.ErrNotSupported)
}
