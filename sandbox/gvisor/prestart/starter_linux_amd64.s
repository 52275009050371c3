// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// Nothing here is ever called. Each of the two is the whole text of a program
// that starter_linux.go lays out: it begins where the kernel enters an
// executable, with the stack of execve(2), and refers to nothing but its own
// labels and the fixed addresses that starter_linux.go knows, too.
// Numbers of system calls: arch/x86/entry/syscalls/syscall_64.tbl.

// bounds: capget, capset, prctl for each capability, execve.
// R13 is argv, R14 the environment, R15 the capabilities to keep.
TEXT ·bounds(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ 0(SP), R12             // argc
	LEAQ 8(SP), R13
	LEAQ 8(R13)(R12*8), R14
	MOVQ $0x400088, AX          // kernelAt
	MOVQ (R13), CX
	MOVBLZX 6(CX), CX           // "runsc-gofer" or "runsc-sandbox"
	CMPL CX, $0x67              // 'g'
	JNE  keep
	MOVQ $0x400080, AX          // goferAt
keep:
	MOVQ (AX), R15
	LEAQ -64(SP), BX            // header and data of capget(2)
	MOVL $0x20080522, 0(BX)     // _LINUX_CAPABILITY_VERSION_3
	MOVL $0, 4(BX)              // this thread
	MOVQ BX, DI
	LEAQ 8(BX), SI
	MOVL $125, AX               // capget
	SYSCALL
	TESTQ AX, AX
	JNZ  fail
	MOVL 12(BX), AX             // inheritable = permitted
	ANDL $0xfffffeff, AX        // without CAP_SETPCAP, number 8
	MOVL AX, 16(BX)
	MOVL 24(BX), AX
	MOVL AX, 28(BX)
	MOVQ BX, DI
	LEAQ 8(BX), SI
	MOVL $126, AX               // capset
	SYSCALL
	TESTQ AX, AX
	JNZ  fail
	XORL R12, R12               // the capability's number
drop:
	BTQ  R12, R15
	JCS  next
	MOVL $24, DI                // PR_CAPBSET_DROP
	MOVQ R12, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	MOVL $157, AX               // prctl
	SYSCALL
	TESTQ AX, AX
	JZ   next
	CMPQ AX, $-22               // EINVAL: the kernel knows no more of them,
	JNE  fail
	CMPQ R12, $38               // and every kernel knows as many
	JLT  fail
	JMP  dropped
next:
	INCQ R12
	CMPQ R12, $64
	JLT  drop
dropped:
	MOVQ $0x400090, DI          // pathAt
	MOVQ R13, SI
	MOVQ R14, DX
	MOVL $59, AX                // execve
	SYSCALL
fail:
	MOVL $125, DI
	MOVL $231, AX               // exit_group
	SYSCALL
	INT  $3

// umount: read one byte, umount2, exit.
TEXT ·umount(SB), NOSPLIT|NOFRAME, $0-0
	LEAQ -64(SP), BX
again:
	MOVL $3, DI
	MOVQ BX, SI
	MOVL $1, DX
	XORL AX, AX                 // read
	SYSCALL
	CMPQ AX, $-4                // EINTR
	JEQ  again
	CMPQ AX, $1
	JNE  bad
	MOVQ $0x400090, DI          // pathAt
	MOVL $2, SI                 // MNT_DETACH
	MOVL $166, AX               // umount2
	SYSCALL
	TESTQ AX, AX
	JNZ  bad
	XORL DI, DI
	JMP  exit
bad:
	MOVL $1, DI
exit:
	MOVL $231, AX               // exit_group
	SYSCALL
	INT  $3

// func entries() (bounds, umount uintptr)
TEXT ·entries(SB), NOSPLIT, $0-16
	MOVQ $·bounds(SB), AX
	MOVQ AX, bounds+0(FP)
	MOVQ $·umount(SB), AX
	MOVQ AX, umount+8(FP)
	RET
