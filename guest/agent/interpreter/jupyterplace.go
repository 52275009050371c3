// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"maps"
	"slices"
	"strings"
)

// placeR is what R runs before a cell that has variables or a directory of its own, on the
// cell's first line, and after it.
func placeR(c *command) (before, after string) {
	var names, set strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if set.Len() > 0 {
			names.WriteString(", ")
			set.WriteString(", ")
		}
		names.WriteString(literal(name))
		set.WriteString(literal(name) + " = " + literal(c.Env[name]))
	}
	was := "base::character()" // of which Sys.getenv would give all
	if len(c.Env) > 0 {
		was = "base::Sys.getenv(base::c(" + names.String() + "), unset = NA, names = TRUE)"
	}
	before = "base::assign('.caisson', base::list(e = " + was + ", d = base::getwd()), envir = base::globalenv()); "
	if len(c.Env) > 0 {
		before += "base::Sys.setenv(" + set.String() + "); "
	}
	if c.Dir != "" {
		before += "base::setwd(" + literal(c.Dir) + "); "
	}
	return before, `base::local({
  b <- base::get(".caisson", envir = base::globalenv())
  for (n in base::names(b$e)) if (base::is.na(b$e[[n]])) base::Sys.unsetenv(n) else base::do.call(base::Sys.setenv, base::as.list(b$e[n]))
  base::setwd(b$d)
  base::rm(".caisson", envir = base::globalenv())
})`
}
