// SPDX-License-Identifier: Apache-2.0

//go:build race

package audit

// raceDetector says whether the tests run under it.
const raceDetector = true
