// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func startSteps(trap, arg0, arg1 uintptr, r *record, s *step) uintptr
//
// The child uses no stack, calls nothing and looks at nothing but what s and r
// point to. Registers that a system call keeps: R12 is the step, R13 the record.
TEXT ·startSteps(SB),NOSPLIT,$0-48
	MOVQ	trap+0(FP), AX // clone or clone3
	MOVQ	arg0+8(FP), DI
	MOVQ	arg1+16(FP), SI
	MOVQ	r+24(FP), R13
	MOVQ	s+32(FP), R12
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	SYSCALL
	TESTQ	AX, AX
	JEQ	next
	MOVQ	AX, ret+40(FP)
	RET

next:
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	XORL	R8, R8
	SYSCALL
	CMPQ	AX, $0xfffffffffffff001
	JCS	done
	MOVQ	40(R12), R14 // what a failure means
	CMPQ	R14, $1 // may
	JEQ	done
	NEGQ	AX
	MOVQ	R12, 8(R13)
	MOVQ	AX, 16(R13)
	MOVQ	AX, R15
	MOVL	$1, AX // write
	MOVQ	0(R13), DI
	LEAQ	8(R13), SI
	MOVL	$16, DX
	SYSCALL
	CMPQ	R14, $2 // try
	JNE	exit
	CMPQ	R15, $2 // ENOENT
	JEQ	done
	CMPQ	R15, $13 // EACCES
	JEQ	done
	CMPQ	R15, $20 // ENOTDIR
	JEQ	done

exit:
	MOVL	$253, DI
	MOVL	$60, AX // exit
	SYSCALL
	JMP	exit

done:
	ADDQ	$48, R12
	JMP	next
