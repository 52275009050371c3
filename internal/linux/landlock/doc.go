// SPDX-License-Identifier: Apache-2.0

// Package landlock makes rulesets of Landlock (landlock(7), Linux 5.13): a
// second wall behind mount namespaces, which holds when code gets hold of a
// directory outside, and which the code inside cannot take down.
//
// A ruleset is made from open files and is itself a descriptor. A child that
// shares its parent's memory needs three raw system calls at most: add a rule
// for what it has mounted itself ([Ruleset.Rule]), no_new_privs, and
// landlock_restrict_self with [Ruleset.FD] and [Ruleset.Flags].
//
// Under a ruleset nothing can be mounted any more, so it comes after that.
//
// Kernels differ in what they can refuse, by a version called ABI. A ruleset
// refuses all that this kernel can and says what is [Missing].
package landlock
