// SPDX-License-Identifier: Apache-2.0

package interpreter

import "time"

// SetTimeouts sets how long an interrupt may take, for contexts that are made then.
func (s *Contexts) SetTimeouts(insist, kill time.Duration) { s.timeouts = timeouts{insist, kill} }
