// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/sandbox"
)

// emptyMeans marks flags whose empty value is one: no entrypoint, code that does
// nothing, no words.
func emptyMeans(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := fs.SetAnnotation(name, emptyIsOne, nil); err != nil {
			panic(err) // a flag that is not there
		}
	}
}

const emptyIsOne = "caisson_empty"

// allGiven refuses flags that were given with nothing in them. --policy "$UNSET" is
// no run without a policy, and a filter is not one for everything.
func allGiven(cmd *cobra.Command, _ []string) error {
	var errs []error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, ok := f.Annotations[emptyIsOne]; ok || !isEmpty(f.Value) {
			return
		}
		errs = append(errs, &sandbox.Error{Op: "--" + f.Name, Kind: sandbox.ErrInvalid, Problem: "it is given, and is empty",
			Hint: "say what it is to be, or leave it out; a variable that it comes from may not be set"})
	})
	return errors.Join(errs...)
}

// isEmpty says whether a flag holds text, and none; of a list, whether any has none.
func isEmpty(v pflag.Value) bool {
	list, ok := v.(pflag.SliceValue)
	if !ok {
		return v.String() == ""
	}
	all := list.GetSlice()
	return len(all) == 0 || slices.Contains(all, "")
}
