// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
)

// entry is the code that a process begins with, at an address. Where its second argument
// is "run", and its first does not begin with a plus sign (internal/linux/whole), it goes
// on at lean, else at whole.
//
// A new process has on its stack the number of its arguments and their addresses (System
// V ABI, process initialization), and each argument is followed by others, the
// environment and the program's name: four bytes can be read wherever one begins. Nothing is
// changed but registers that mean nothing to Go's own entry.
func entry(m elf.Machine, at, whole, lean uint64) ([]byte, error) {
	switch m {
	case elf.EM_X86_64:
		return entryAMD64(at, whole, lean)
	case elf.EM_AARCH64:
		return entryARM64(whole, lean), nil
	}
	return nil, fmt.Errorf("there is no entry for %v", m)
}

func entryAMD64(at, whole, lean uint64) ([]byte, error) {
	code := []byte{
		0x48, 0x83, 0x3c, 0x24, 0x02, //       cmpq $2, (%rsp)
		0x7c, 28, //                         jl whole
		0x48, 0x8b, 0x44, 0x24, 0x10, //       mov 16(%rsp), %rax
		0x81, 0x38, 'r', 'u', 'n', 0, //       cmpl $"run", (%rax)
		0x75, 15, //                         jne whole
		0x48, 0x8b, 0x44, 0x24, 0x08, //       mov 8(%rsp), %rax
		0x80, 0x38, '+', //                    cmpb $'+', (%rax)
		0x74, 5, //                     je whole
	}
	for _, to := range []uint64{lean, whole} { //  jmp lean; whole: jmp whole
		far := int64(to) - int64(at) - int64(len(code)) - 5
		if far != int64(int32(far)) {
			return nil, errors.New("the programs are too far from one another")
		}
		code = le.AppendUint32(append(code, 0xe9), uint32(far&math.MaxUint32))
	}
	return code, nil
}

func entryARM64(whole, lean uint64) []byte {
	var code []byte
	for _, word := range []uint32{
		0xf94003e0,             //  0: ldr x0, [sp]
		0xf100081f,             //  1: cmp x0, #2
		0x5400018b,             //  2: b.lt 14
		0xf9400be0,             //  3: ldr x0, [sp, #16]
		0xb9400000,             //  4: ldr w0, [x0]
		0x18000161,             //  5: ldr w1, 16
		0x6b01001f,             //  6: cmp w0, w1
		0x540000e1,             //  7: b.ne 14
		0xf94007e0,             //  8: ldr x0, [sp, #8]
		0x39400000,             //  9: ldrb w0, [x0]
		0x7100ac1f,             // 10: cmp w0, #'+'
		0x54000060,             // 11: b.eq 14
		0x58000110,             // 12: ldr x16, 20
		0xd61f0200,             // 13: br x16
		0x58000090,             // 14: ldr x16, 18
		0xd61f0200,             // 15: br x16
		'r' | 'u'<<8 | 'n'<<16, // 16
		0,                      //          so that the addresses, 18 and 20, are at a multiple of eight
	} {
		code = le.AppendUint32(code, word)
	}
	return le.AppendUint64(le.AppendUint64(code, whole), lean)
}
