// SPDX-License-Identifier: Apache-2.0

// Package kernel keeps Linux kernels for virtual machines: those of this host's
// packages, or files that were downloaded. caisson ships none.
//
//	caisson vm kernel import            the newest /boot/vmlinuz-*
//	caisson vm kernel import ./vmlinux  Firecracker's own, say
//
// A kernel is kept as what every virtual machine monitor boots fastest, and Firecracker
// alone: an ELF file without compression ([Extract]). A distribution's kernel has its
// drivers as modules, so those that a guest needs are kept beside it, in the order in
// which they are loaded ([Store.Import]). Root of a guest alone sees them.
package kernel
