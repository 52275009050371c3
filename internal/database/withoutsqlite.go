// SPDX-License-Identifier: Apache-2.0

//go:build lean

package database

// This file stands for sqlite.go in the program that is for `caisson run` alone
// (cmd/caisson-run): what it would keep in a database it hands over.
const withSQLite = false

func fullSQLite(error) bool { return false }
