// SPDX-License-Identifier: Apache-2.0

package policy

import (
	_ "embed" // for schema.json
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of policy files, for editors. It
// describes what Parse takes; Parse is the stricter of the two, because it
// also reads patterns, paths and conditions.
func Schema() []byte { return slices.Clone(schema) }
