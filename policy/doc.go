// SPDX-License-Identifier: Apache-2.0

// Package policy reads the policy file and decides one call.
//
// # Layers
//
// Three voices say what a call may do, and each may only narrow the one
// before it:
//
//	system    /etc/caisson/policy.yaml. A bound: it grants nothing by itself.
//	          Its image, images, mounts, workspace, toolchains, rootfs, env,
//	          writable, collect, user and best_effort say what may be asked for; its
//	          isolation, limits, watch and deny always hold. Nothing
//	          overrides it.
//	file      the policy file of --policy. What it names is set up, and it is
//	          the most that a call may ask for.
//	call      flags of the command line, or fields of a request.
//
// What a file does not mention has the safe default, so a layer that is silent
// about mounts allows none, and one that is silent about memory allows the
// default memory. Where there is no file at all, the operator's flags are the
// policy; a caller who is not the operator then gets the defaults and may only
// lower them.
//
// [Parse] reads a file, [New] puts the layers together, [Policy.Decide] gives
// the [Verdict] on a [Call], with the [Plan] that is in force when the verdict
// is Allow. The zero Verdict is Deny, and a fault in this package ends in Deny.
//
// The package does no I/O: it opens no file, asks no clock and no environment. Host
// paths are compared by their components, as text; the session that carries a Plan
// out opens each path beneath the source that covers it ([PlanMount.Beneath]) and
// judges the object it got.
package policy
