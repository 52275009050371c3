// SPDX-License-Identifier: Apache-2.0

// Package expr compiles and evaluates the conditions of a policy file: CEL, over
// one call of a tool.
//
// A condition is checked against the tool's own schema when it is read, so that a
// name that is written wrong is a fault of the file and not a rule that never
// holds. What it costs is bounded; a condition that fails is an error, which is
// never a yes. Strings are compared by helpers that parse them first, because an
// address that ends in "company.com" need not be one of company.com.
//
// Nothing here does I/O. Environments are made when the first condition is
// compiled: most runs have none.
package expr
