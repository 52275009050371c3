// SPDX-License-Identifier: Apache-2.0

// Package postponed takes packages out of the start of the program that imports it;
// package later says how they come back. It is initialised before almost all of
// them, as its path comes before theirs and it imports next to nothing (the linker
// orders by imports, then by path); those that were initialised before it are left
// alone.
//
// Only packages are listed of which all importers that have something to initialise
// are listed too, or first-party: these use them in functions alone. What is used
// without a call of Ready meets maps without entries and pointers to nothing: it
// does less, or panics.
package postponed

import "github.com/caisson-run/caisson/internal/later"

func init() {
	later.Conditions.Postpone(conditions())
	later.Registries.Postpone(registries())
	later.Serving.Postpone(serving())
	later.Schemas.Postpone(schemas())
	later.Policies.Postpone(policies())
}
