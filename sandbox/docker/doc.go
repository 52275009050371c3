// SPDX-License-Identifier: Apache-2.0

// Package docker is the level that most people know: a container of a Docker
// Engine, or of Podman, which speaks the same API.
//
//	caisson ──unix socket, HTTP──► engine ──► runtime ──► container: agent ──► the program
//	   └──────one hijacked connection, multiplexed──────────► fd 0, 1, 2 of the agent
//
// Every sandbox is a fresh container with the guest agent as its first
// process: on a read-only root, without a network, with no capability for what
// runs in it, under the engine's limits. There is one road for everything;
// a one-shot of its own would save a few of some hundred milliseconds.
//
// # What the engine is told
//
// The request is a closed struct ([createRequest]): what it has no field for
// cannot be asked of the engine, whatever a Spec says. The engine's own socket
// is never mounted, nor a directory that leads to it.
//
// # Names and objects
//
// An engine takes names, and a name that was checked can mean something else
// a moment later. So the driver compares what the container really shows with
// the handles it was given, by device and inode, through the container's own
// mount namespace, before anything runs but the agent, which waits for its
// first session. Where that cannot be done, nothing of the host is mounted.
//
// # The end
//
// The agent's stream is one connection. When caisson dies it closes, the
// engine closes the agent's fd 0, the agent ends, and the engine removes the
// container, because it was told to at the beginning. What is left when the
// engine dies at the same time is found by its name and the
// label of its state directory, and swept ([Driver.Sweep]).
package docker

// Name is what --isolation takes.
const Name = "docker"
