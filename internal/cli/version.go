// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// version is set by the build (-X).
var version = ""

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Versions of caisson, Go and the gVisor inside, and its age",
		Example: `  caisson version
  caisson version --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				a.printJSON(versions(time.Now()))
				return nil
			}
			a.printVersions()
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) printVersions() {
	v := versions(time.Now())
	fmt.Fprintf(a.out, "caisson %s\n%s %s/%s\n", v.Caisson, v.Go, v.OS, v.Arch)
	if v.GVisor != "" {
		fmt.Fprintf(a.out, "gvisor %s", v.GVisor)
		if v.GVisorAge != nil {
			fmt.Fprintf(a.out, " (%d days old)", *v.GVisorAge)
		}
		fmt.Fprintln(a.out)
	}
}

type versionJSON struct {
	Caisson   string `json:"caisson"`
	Go        string `json:"go"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	GVisor    string `json:"gvisor,omitempty"`
	GVisorAge *int   `json:"gvisor_age_days,omitempty"`
}

// versions reads what the build wrote into the binary: nothing is opened,
// nothing probed.
func versions(now time.Time) versionJSON {
	v := versionJSON{Caisson: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && v.Caisson == "" {
		v.Caisson = info.Main.Version
	}
	if v.GVisor = gvisorVersion(); v.GVisor != "" {
		if d, ok := pseudoDate(v.GVisor); ok {
			age := max(0, int(now.Sub(d)/(24*time.Hour)))
			v.GVisor, v.GVisorAge = d.Format("20060102"), &age
		}
	}
	return v
}

// pseudoDate is the commit's date in a pseudo-version, v0.0.0-20260905123456-abcdef123456.
func pseudoDate(v string) (time.Time, bool) {
	parts := strings.Split(v, "-")
	if len(parts) < 3 {
		return time.Time{}, false
	}
	stamp := parts[len(parts)-2]
	if i := strings.LastIndexByte(stamp, '.'); i >= 0 {
		stamp = stamp[i+1:]
	}
	t, err := time.Parse("20060102150405", stamp)
	return t, err == nil
}
