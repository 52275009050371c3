// SPDX-License-Identifier: Apache-2.0

// Package sandbox is the vocabulary and the contract between caisson and what
// isolates code: what a sandbox is made of ([Spec]), what runs in it ([Exec]),
// what came of it ([Result]), and what a level of isolation has to do
// ([Driver], [Instance]).
//
// # The model
//
// A Spec says what the world inside looks like: a read-only root, mounts,
// private scratch, a user, limits, a network. An Exec is one program in that
// world. A Driver makes worlds; it is handed a Spec whose every clause it has
// said (through Capabilities) that it can enforce, and it enforces all of
// them or returns an error. It never runs with less.
//
// There are three ways to run something:
//
//	one-shot   Runner.Run(ctx, spec, exec)       world, program and its end in one call
//	ahead      Preparer.Prepare(ctx, spec)       the world first, which waits for its program;
//	           Prepared.Run(ctx, exec)           the program and its end
//	living     Driver.Start(ctx, spec)           the guest agent is the first process;
//	           Instance.Dial(ctx)                programs, files, terminals go through it
//
// All behave the same, which sandbox/drivertest proves. Every level has living
// sandboxes, and the other two where it can be faster.
//
// Nothing that comes out of a sandbox is trusted: not names, not sizes, not
// the guest agent's answers. Paths inside are never resolved on the host; host
// objects are handed over as open files ([Mount.Source]), the very objects
// that were checked, never as names.
//
// The package imports only the standard library.
package sandbox
