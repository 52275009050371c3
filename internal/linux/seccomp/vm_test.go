// SPDX-License-Identifier: Apache-2.0

package seccomp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// run is the kernel's part: it runs a filter on one call. It knows what
// assemble writes, and refuses what the kernel's checker would (jumps out of the
// program, loads that are not there, no answer at the end).
func run(program []unix.SockFilter, arch, number uint32, args [6]uint64) (uint32, error) {
	var accumulator uint32
	for pc := 0; pc < len(program); pc++ {
		in := program[pc]
		condition := false
		switch in.Code {
		case load:
			switch {
			case in.K == offsetNumber:
				accumulator = number
			case in.K == offsetArch:
				accumulator = arch
			case in.K >= offsetArgs && in.K < offsetArgs+8*6 && in.K%8 == 0:
				accumulator = uint32(args[(in.K-offsetArgs)/8])
			default:
				return 0, fmt.Errorf("%d: load from %d", pc, in.K)
			}
			continue
		case mask:
			accumulator &= in.K
			continue
		case answer:
			return in.K, nil
		case jump:
			pc += int(in.K)
			continue
		case equal:
			condition = accumulator == in.K
		case atLeast:
			condition = accumulator >= in.K
		case anyBit:
			condition = accumulator&in.K != 0
		default:
			return 0, fmt.Errorf("%d: code %#x", pc, in.Code)
		}
		if condition {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	return 0, fmt.Errorf("ran out of the program")
}
