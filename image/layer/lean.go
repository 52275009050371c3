// SPDX-License-Identifier: Apache-2.0

//go:build lean

package layer

import "io"

// expand refuses: this program reads no layers.
func (s *stream) expand(io.Reader) error { return broken(nil, "layers are not read by this program") }
