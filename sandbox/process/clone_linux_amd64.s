// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func rawClone(trap, a1, a2, a3 uintptr) uintptr
//
// The child runs on its parent's stack and overwrites what lies below the
// caller's frame, the address to return to among it. So that one is kept in a
// register, which each of the two processes has for itself.
TEXT ·rawClone(SB),NOSPLIT|NOFRAME,$0-40
	MOVQ	a1+8(FP), DI
	MOVQ	a2+16(FP), SI
	MOVQ	a3+24(FP), DX
	XORL	R10, R10
	XORL	R8, R8
	XORL	R9, R9
	MOVQ	trap+0(FP), AX
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	MOVQ	AX, ret+32(FP)
	RET
