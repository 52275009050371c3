// SPDX-License-Identifier: Apache-2.0

package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// verdict is the answer to one system call: an action, or a test that leads to
// one. The zero value kills the thread (SECCOMP_RET_KILL_THREAD is 0).
type verdict struct {
	action uint32
	test   *test
}

// test looks at the lower half of one argument: all that are tested here are
// 32 bits wide for the kernel, which ignores the upper half; a filter that
// looked at it could be passed by setting a bit there.
type test struct {
	arg       uint32   // 0 to 5
	mask      uint32   // the bits that are compared; 0 is all of them
	values    []uint32 // holds when it equals one of these; none: when any bit of mask is set
	then, not verdict
}

var (
	allow = verdict{action: unix.SECCOMP_RET_ALLOW}
	kill  = verdict{action: unix.SECCOMP_RET_KILL_PROCESS}
)

func errno(e unix.Errno) verdict {
	return verdict{action: unix.SECCOMP_RET_ERRNO | uint32(e)}
}

// refuseBits allows a call unless its argument has one of the bits.
func refuseBits(arg, bits uint32) verdict {
	return verdict{test: &test{arg: arg, mask: bits, then: errno(unix.EPERM), not: allow}}
}

// among is then where the masked argument is one of values, else not.
func among(arg, mask uint32, values []uint32, then, not verdict) verdict {
	return verdict{test: &test{arg: arg, mask: mask, values: values, then: then, not: not}}
}

// same says that two verdicts never differ; tests are not compared.
func (v verdict) same(w verdict) bool {
	return v.test == nil && w.test == nil && v.action == w.action
}

// judge is what v answers to args.
func (v verdict) judge(args [6]uint64) uint32 {
	for v.test != nil {
		if v.test.holds(uint32(args[v.test.arg])) {
			v = v.test.then
		} else {
			v = v.test.not
		}
	}
	return v.action
}

func (t *test) holds(arg uint32) bool {
	if t.values == nil {
		return arg&t.mask != 0
	}
	if t.mask != 0 {
		arg &= t.mask
	}
	return slices.Contains(t.values, arg)
}
