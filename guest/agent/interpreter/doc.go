// SPDX-License-Identifier: Apache-2.0

// Package interpreter is the part of the agent that keeps contexts: kernels, which are
// processes that run one cell after the other, and what becomes of each cell.
//
// A kernel of our own is a program that the agent carries and gives to an interpreter
// as its fd 0, so that it is in no file and no argument. Commands go to its fd 3 and
// events come from its fd 4, as lines of JSON; what programs that a cell starts write to
// fd 1 and 2 is read before each event, so that it keeps its place. Before it starts one
// Python asks, and is told on fd 5, that its events were taken. Bash speaks on one socket
// instead ([bashTalk]), and a Jupyter kernel its own protocol ([jupyterTalk]).
//
// A cell always ends: when its kernel says so, when the kernel ends, or when it is
// killed because it did not honour an interrupt. What a kernel says was written by the
// code that it runs: it is bounded, and a line that is none ends the kernel.
package interpreter
