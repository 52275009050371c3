// SPDX-License-Identifier: Apache-2.0

package openai

import "encoding/base64"

// Encode is a path as it is in a file's ID.
func Encode(rel string) string { return base64.RawURLEncoding.EncodeToString([]byte(rel)) }
