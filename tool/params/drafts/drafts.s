// SPDX-License-Identifier: Apache-2.0

// Nothing is here. With this file the compiler takes a function without a body.
