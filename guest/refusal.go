// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

var (
	refusalStatuses = []int{400, 401, 403, 404, 406, 409, 412, 416, 429, 501, 507}
	refusalCodes    = []string{
		"already_exists", "deadline_exceeded", "failed_precondition", "internal", "invalid_argument",
		"not_found", "permission_denied", "resource_exhausted", "unauthenticated", "unimplemented", "unknown",
	}
)

// maxPhrase is how much of a phrase of the guest's is kept, in bytes.
const maxPhrase = 4 << 10

// answeredError reads an error answer of the agent. Its text is the guest's:
// it is shown, quoted, and decides nothing but the error's kind.
func answeredError(op string, resp *http.Response) error {
	var e struct {
		Code    any
		Message string
	}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 2*maxPhrase))
	json.Unmarshal(b, &e)
	code, _ := e.Code.(string)
	return refusal(op, resp.StatusCode, code, e.Message)
}

// codeStatuses are the statuses of codes that come without one: behind the
// beginning of a stream.
var codeStatuses = map[string]int{
	"already_exists": 409, "failed_precondition": 400, "invalid_argument": 400, "not_found": 404,
	"permission_denied": 403, "resource_exhausted": 429, "unauthenticated": 401, "unimplemented": 501,
}

// refusal makes an error of a status, or of a code when that is 0.
func refusal(op string, status int, code, message string) error {
	if status == 0 {
		status = codeStatuses[code]
	}
	r := &sandbox.AgentError{Status: http.StatusInternalServerError, Code: "unknown"}
	if slices.Contains(refusalStatuses, status) {
		r.Status = status
	}
	if slices.Contains(refusalCodes, code) {
		r.Code = code
	}
	r.Message = strings.ToValidUTF8(message[:min(len(message), maxPhrase)], "")
	kind := sandbox.ErrUnavailable
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnauthorized, http.StatusNotAcceptable,
		http.StatusRequestedRangeNotSatisfiable, http.StatusPreconditionFailed, http.StatusNotImplemented:
		kind = sandbox.ErrInvalid
	case http.StatusNotFound:
		kind = sandbox.ErrNotFound
	case http.StatusConflict:
		kind = sandbox.ErrConflict
	}
	if message == "" {
		r.Err = sandbox.Errorf(kind, op, "the guest agent answers with status %d", status)
	} else {
		r.Err = sandbox.Errorf(kind, op, "%s", printable(message))
	}
	return r
}
