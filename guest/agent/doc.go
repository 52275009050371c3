// SPDX-License-Identifier: Apache-2.0

// Package agent is the guest agent: the first process of a sandbox, which
// reaps, starts programs, gives them terminals, signals them, and moves files.
//
// It serves one byte stream (package stream) with HTTP/2: envd's Connect
// services in JSON, written by hand, and frames of our own where JSON would
// cost (package wire). connect-go and protobuf stay out: they double its size
// and memory, which every sandbox pays.
//
// The agent is root inside, and the code it runs is not, so that code can
// neither signal it nor read its memory, its environment, or its stream. Files
// are touched with the rights of the user a request names. Where code inside
// is root too it owns the agent; the host trusts no answer either way.
package agent

// MarkVariable is the environment variable that hands the session mark over.
// It is wiped from the agent's memory where the kernel keeps it for /proc.
const MarkVariable = "CAISSON_GUEST_MARK"

// LookVariable is the environment variable with the paths, as a JSON list, at
// which the agent says what it sees before it serves any call: a driver that
// cannot look itself compares that with what it had mounted. The answer is one
// line on fd 2, LookPrefix and a JSON list of device and inode pairs.
const (
	LookVariable = "CAISSON_GUEST_LOOK"
	LookPrefix   = "looked "
)

// OwnVariable is the environment variable with directories, as a JSON list, that
// are to be the user's, mode 0755: for engines that cannot make them so.
const OwnVariable = "CAISSON_GUEST_OWN"

// OOMVariable is the environment variable that has the agent say, by the line OOMLine
// on fd 2, that the memory limit of its control group has killed something: for a
// driver that does not learn it otherwise, because a kernel of the sandbox's own holds
// it.
const (
	OOMVariable = "CAISSON_GUEST_OOM"
	OOMLine     = "killed by the memory limit"
)
