// SPDX-License-Identifier: Apache-2.0

// Lets fork_linux.go declare functions without a body.
