// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

func TestProfile(t *testing.T) {
	name, p, err := profile("ci:sandboxes=20,paused=5,snapshots=3,templates=4,template-size=2GiB,cpus=2.5,memory=16GiB,disk=1TiB,records=1GiB,timeout=10m,max-timeout=1h")
	want := persistent.DefaultProfile()
	want.Quota = persistent.Quota{Sandboxes: 20, Paused: 5, Snapshots: 3, Templates: 4, TemplateSize: 2 << 30, CPUs: 2.5, Memory: 16 << 30, Disk: 1 << 40, Records: 1 << 30}
	want.Timeout, want.MaxTimeout = 10*time.Minute, time.Hour
	if err != nil || name != "ci" || p.Quota != want.Quota || p.Timeout != want.Timeout || p.MaxTimeout != want.MaxTimeout {
		t.Errorf("%q, %+v, %v", name, p, err)
	}
	name, p, err = profile("max-timeout=1m")
	if err != nil || name != "" || p.Quota != persistent.DefaultProfile().Quota || p.Timeout != time.Minute {
		t.Errorf("%q, %+v, %v: the rest is the default's, within the longest time", name, p, err)
	}
	for text, hint := range map[string]string{
		"": "FIELD=VALUE", "ci:": "FIELD=VALUE", "sandboxes": "FIELD=VALUE", "cpus=1,cpus=2": "there twice", "sandboxes=0": "0 is none",
		"sandboxes=-1": "sandboxes", "memory=much": "memory", "cpus=NaN": "processors", "cpus=0": "processors", "timeout=0s": "the least is 1ms",
		"max-timeout=99999999h": "the most is 8760h", "sandboxes=99999999999": "from 1 to 2147483647",
		"timeout=5": "timeout", "memroy=1GiB": "did you mean memory?", "root=yes": "there are sandboxes",
	} {
		_, _, err := profile(text)
		var e *sandbox.Error
		if !errors.As(err, &e) || !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(e.Error()+e.Hint, hint) {
			t.Errorf("%q: %v, want something about %s", text, err, hint)
		}
	}
	if _, err := profiles([]string{"a:cpus=1", "a:cpus=2"}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("two of one name: %v", err)
	}
}
