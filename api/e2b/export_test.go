// SPDX-License-Identifier: Apache-2.0

package e2b

import "net/url"

// Sign makes a signature as clients do, escaped for a query.
func Sign(path, operation, user, token, expiration string) string {
	return url.QueryEscape(sign(signed{path: path, operation: operation, user: user, expiration: expiration}, token))
}
