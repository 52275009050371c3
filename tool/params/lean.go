// SPDX-License-Identifier: Apache-2.0

//go:build lean

package params

import "github.com/caisson-run/caisson/sandbox"

// Schema is a JSON Schema. A program without a library for them has none.
type Schema struct{}

// Compile refuses.
func Compile([]byte) (*Schema, error) { return nil, errLean }

// Check finds everything at fault.
func (*Schema) Check(any) []Fault { return []Fault{{Problem: errLean.Problem}} }

var errLean = &sandbox.Error{Op: "schema", Kind: sandbox.ErrUnsupported, Problem: "schemas are not in this program"}
