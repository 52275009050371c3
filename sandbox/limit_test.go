// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"reflect"
	"testing"
	"time"
)

// Every limit that has a name has a field, and every field but those that are
// no limit has a name.
func TestEveryLimitHasAField(t *testing.T) {
	names := LimitNames()
	if fields := reflect.TypeFor[Limits]().NumField(); len(names) != fields-2 { // OutputKill, Explicit
		t.Errorf("%d names, %d fields", len(names), fields)
	}
	for _, name := range names {
		var l Limits
		if l.InForce(name) {
			t.Errorf("%s is in force in the zero value", name)
		}
		f := l.field(name)
		if !f.IsValid() {
			t.Fatalf("%s has no field", name)
		}
		if f.CanFloat() {
			f.SetFloat(1)
		} else {
			f.SetInt(1)
		}
		if !l.InForce(name) {
			t.Errorf("%s is set and not in force", name)
		}
		for _, other := range names {
			if other != name && l.InForce(other) {
				t.Errorf("setting %s sets %s", name, other)
			}
		}
	}
	if (&Limits{}).InForce("nonsense") {
		t.Error("a limit that does not exist is in force")
	}
}

func TestClearTouchesNoCopy(t *testing.T) {
	l := Limits{Wall: time.Second, Memory: 1, Explicit: map[LimitName]bool{LimitWall: true, LimitMemory: true}}
	c := l
	c.Clear(LimitMemory)
	c.Clear("nonsense")
	if c.Memory != 0 || c.Explicit[LimitMemory] || c.Wall != time.Second || !c.Explicit[LimitWall] {
		t.Errorf("cleared: %+v", c)
	}
	if l.Memory != 1 || !l.Explicit[LimitMemory] {
		t.Errorf("the original: %+v", l)
	}
}
