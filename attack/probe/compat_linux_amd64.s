// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func int80(number, a, b uintptr) uintptr
TEXT ·int80(SB), NOSPLIT, $0-32
	MOVQ number+0(FP), AX
	MOVQ a+8(FP), BX
	MOVQ b+16(FP), CX
	INT  $0x80
	MOVQ AX, ret+24(FP)
	RET
