// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func rawClone(trap, a1, a2, a3 uintptr) uintptr
//
// The address to return to is in the link register here.
TEXT ·rawClone(SB),NOSPLIT,$0-40
	MOVD	a1+8(FP), R0
	MOVD	a2+16(FP), R1
	MOVD	a3+24(FP), R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	ZR, R5
	MOVD	trap+0(FP), R8
	SVC
	MOVD	R0, ret+32(FP)
	RET
