// SPDX-License-Identifier: Apache-2.0

// Package seccomp makes the system call filters of levels on which untrusted
// code talks to the host's kernel itself.
//
// [Untrusted] is the list for untrusted code: what ordinary programs need, and
// nothing else. It answers for every system call of amd64 and arm64:
//
//   - allowed, some only with harmless arguments;
//   - refused with EPERM, what reaches into the kernel, the machine or other
//     processes;
//   - refused with ENOSYS, what is newer than the list, what the kernel itself
//     no longer has, and what cannot be judged by its arguments and has an older
//     form that a C library goes back to then (clone3, openat2).
//
// A call by another architecture's entry (int 0x80 on amd64, a 32-bit program)
// kills the process: no program of ours makes one by mistake, and its numbers
// mean other calls. The x32 entry, the same architecture with a bit in the
// number, answers ENOSYS, as a kernel without it does.
//
// A filter is a program of classic BPF (seccomp(2)): it checks the
// architecture first, because the kernel runs each new filter once for every
// system call of every architecture, and then finds the number in a balanced
// tree of ranges. Measured for 150 rules: 500 µs to install as a list, 257 µs as
// a list behind that check, 98 to 148 µs as a tree.
package seccomp
