// SPDX-License-Identifier: Apache-2.0

// An assembly file lets the package declare a function without a body.
