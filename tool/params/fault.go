// SPDX-License-Identifier: Apache-2.0

package params

// MaxSchema is how long a schema may be, in bytes.
const MaxSchema = 64 << 10

// Fault is something that does not fit the schema.
type Fault struct {
	Path    string `json:"path"` // a JSON pointer; "" is the whole
	Problem string `json:"problem"`
}
