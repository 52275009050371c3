// SPDX-License-Identifier: Apache-2.0

package sentry

// oldModeArgs are the calls that only older architectures have.
var oldModeArgs []modeArg
