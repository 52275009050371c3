// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/policy"
)

// The description has the ranges that a policy has: what is in them can be said there,
// and what is one beyond them cannot.
func TestLimitRanges(t *testing.T) {
	said := func(name, value string) error {
		_, err := policy.Parse("limits.yaml", []byte("version: 1\nlimits: {"+name+": "+value+"}\n"))
		return err
	}
	fields := reflect.TypeFor[Limits]()
	for i := range fields.NumField() {
		f := fields.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		minimum, maximum := f.Tag.Get("minimum"), f.Tag.Get("maximum")
		if minimum == "" || maximum == "" {
			t.Errorf("%s has no range", name)
			continue
		}
		unit, beyond := "", ""
		switch name {
		case "wall", "cpu_time":
			unit, beyond = "s", maximum+".001"
		case "cpus":
			beyond = maximum + ".01"
		default:
			if name == "io" {
				unit = "/s"
			}
			var n int64
			if _, err := fmt.Sscan(maximum, &n); err != nil {
				t.Fatal(err)
			}
			beyond = fmt.Sprint(n + 1)
		}
		for _, value := range []string{minimum, maximum} {
			if err := said(name, value+unit); err != nil {
				t.Errorf("%s: %s: %v", name, value, err)
			}
		}
		if said(name, beyond+unit) == nil {
			t.Errorf("%s: a policy may say %s, the description not", name, beyond)
		}
	}
}
