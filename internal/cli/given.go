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
// nothing, no words. On a command it means its arguments, which are a program's, too.
func emptyMeans(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := fs.SetAnnotation(name, emptyIsOne, nil); err != nil {
			panic(err) // a flag that is not there
		}
	}
}

const emptyIsOne = "caisson_empty"

// allGiven refuses flags that were given with nothing in them. --policy "$UNSET" is
// no run without a policy, and a filter is not one for everything. So it refuses
// arguments that are names: policy check "$UNSET" has checked nothing.
func allGiven(cmd *cobra.Command, args []string) error {
	var errs []error
	if _, ok := cmd.Annotations[emptyIsOne]; !ok {
		errs = append(errs, noEmpty(cmd, args))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, ok := f.Annotations[emptyIsOne]; ok || !isEmpty(f.Value) {
			return
		}
		errs = append(errs, &sandbox.Error{Op: "--" + f.Name, Kind: sandbox.ErrInvalid, Problem: "it is given, and is empty",
			Hint: "say what it is to be, or leave it out; a variable that it comes from may not be set"})
	})
	return errors.Join(errs...)
}

// noEmpty refuses an argument before -- that is empty. What stands behind it is a
// program's, and a shell that completes asks for what begins with nothing.
func noEmpty(cmd *cobra.Command, args []string) error {
	if cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd {
		return nil
	}
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		args = args[:n]
	}
	if !slices.Contains(args, "") {
		return nil
	}
	return usage(cmd, "an argument is given, and is empty", "say what it is to be; a variable that it comes from may not be set")
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
