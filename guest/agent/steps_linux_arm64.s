// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func startSteps(trap, arg0, arg1 uintptr, r *record, s *step) uintptr
//
// See steps_linux_amd64.s. R19 is the step, R20 the record.
TEXT ·startSteps(SB),NOSPLIT,$0-48
	MOVD	trap+0(FP), R8 // clone or clone3
	MOVD	arg0+8(FP), R0
	MOVD	arg1+16(FP), R1
	MOVD	r+24(FP), R20
	MOVD	s+32(FP), R19
	MOVD	$0, R2
	MOVD	$0, R3
	MOVD	$0, R4
	SVC
	CBZ	R0, next
	MOVD	R0, ret+40(FP)
	RET

next:
	MOVD	0(R19), R8
	MOVD	8(R19), R0
	MOVD	16(R19), R1
	MOVD	24(R19), R2
	MOVD	32(R19), R3
	MOVD	$0, R4
	SVC
	CMN	$4095, R0
	BCC	done
	MOVD	40(R19), R21 // what a failure means
	CMP	$1, R21 // may
	BEQ	done
	NEG	R0, R22
	MOVD	R19, 8(R20)
	MOVD	R22, 16(R20)
	MOVD	$64, R8 // write
	MOVD	0(R20), R0
	ADD	$8, R20, R1
	MOVD	$16, R2
	SVC
	CMP	$2, R21 // try
	BNE	exit
	CMP	$2, R22 // ENOENT
	BEQ	done
	CMP	$13, R22 // EACCES
	BEQ	done
	CMP	$20, R22 // ENOTDIR
	BEQ	done

exit:
	MOVD	$253, R0
	MOVD	$93, R8 // exit
	SVC
	B	exit

done:
	ADD	$48, R19
	B	next
