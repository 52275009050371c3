// SPDX-License-Identifier: Apache-2.0

// Package approval lets a person decide about a call that a policy asks about.
//
// # What is approved
//
// An approval is about one [Subject]: everything that decides what a call does,
// from its arguments to the contents of the program that is executed. Its
// digest is what is kept, what the approver confirms, and what is compared with
// the call that is about to run. A call that differs in one byte is another
// call, and presenting an approval for it ends that approval.
//
// # How it goes
//
// [Store.Ask] makes a request, which is pending until it is answered, it
// expires, or its caller takes it back. No answer, a cancelled one and a no are
// the same: a final no. A yes is used once ([Store.Use]), by the actor that
// asked, before it expires.
//
//	pending ─► approved ─► used
//	   │           └─────► expired, void
//	   └─► denied, expired, cancelled
//
// Every step is one transaction on approvals.db (SQLite), so two processes
// cannot take the same step, and none is lost when one is killed.
//
// # Who approves
//
// Who approves is not who asks. [Store.Approve] takes an approver's credential,
// of which only the hash is kept and which no key of an agent is; the other way
// is a person at a terminal that is not the agent's, whom a frontend vouches for
// ([AtTerminal]).
//
// # What the approver sees
//
// A [View] is made of the Subject when it is asked. Nothing in it is taken as
// it came: see [View] for what an approver's terminal is spared.
package approval
