// SPDX-License-Identifier: Apache-2.0

// Package interpreter is the vocabulary of stateful execution: a context runs one
// cell after the other and keeps its state, and a cell gives events. The agent
// inside a sandbox makes contexts and events, frontends translate them. What comes
// from a sandbox is as hostile as its code: the package describes it, and trusts
// none of it.
package interpreter
