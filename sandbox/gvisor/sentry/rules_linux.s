// SPDX-License-Identifier: Apache-2.0

// An assembly file lets the tests of this package declare functions without a body.
