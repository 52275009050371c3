// SPDX-License-Identifier: Apache-2.0

package begin

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/egress"
	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/internal/store"
)

func TestGuessed(t *testing.T) {
	for line, want := range map[string]guess{
		"caisson run -- true":                                        {level: "gvisor"},
		"caisson run --memory 64MiB -- true":                         {level: "gvisor"},
		"caisson run --isolation gvisor -- true":                     {level: "gvisor"},
		"caisson run --isolation=gvisor -- true":                     {level: "gvisor"},
		"caisson run --allow pypi.org -- true":                       {level: "gvisor", network: true},
		"caisson run script.py":                                      {level: "gvisor"},
		"caisson run -- x --isolation process --allow pypi.org":      {level: "gvisor"},
		"caisson run --isolation process -- true":                    {level: "process"},
		"caisson run --isolation process --allow=pypi.org -- true":   {level: "process", network: true},
		"caisson run --allow pypi.org --isolation=process -- true":   {level: "process", network: true},
		"caisson run --isolation process --isolation=docker -- true": {level: "docker"},
		"caisson run --isolation=docker:runsc -- true":               {level: "docker:runsc"},
		"caisson run -it --isolation":                                {},
		"caisson run --state /s -- true":                             {level: "gvisor", state: "/s"},
		"caisson run --state=/s --isolation process -- true":         {level: "process", state: "/s"},
		"caisson run -- x --state /s":                                {level: "gvisor"},
		"caisson run --state /s -- x --state /t":                     {level: "gvisor", state: "/s"},
		"caisson run script.py --state /s":                           {level: "gvisor", unsure: true},
		"caisson run --memory 64MiB --state=/s script.py":            {level: "gvisor", unsure: true},
		"caisson run --state /s --state /t -- true":                  {level: "gvisor", unsure: true},
		"caisson run --state":                                        {level: "gvisor", unsure: true},
		"caisson run --help":                                         {},
		"caisson run --isolation process --help":                     {},
		"caisson run":                                                {},
		"caisson version":                                            {},
		"caisson serve run --isolation process":                      {},
		"caisson":                                                    {},
	} {
		if got := guessed(strings.Fields(line)); got != want {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

// The device that is made ahead is the one that will be asked for.
func TestDevice(t *testing.T) {
	if want := (tun.Config{Address: egress.Guest.As4(), Gateway: egress.Gateway.As4(), MTU: egress.MTU}); device != want {
		t.Errorf("%v, want %v", device, want)
	}
}

// It is looked for where it will be.
func TestState(t *testing.T) {
	for _, env := range []map[string]string{
		{},
		{"CAISSON_STATE": "/srv/caisson"},
		{"XDG_STATE_HOME": "/xdg", "HOME": "/home/ann"},
		{"XDG_STATE_HOME": "xdg", "HOME": "/home/ann"},
		{"HOME": "/home/ann"},
	} {
		for _, name := range []string{"CAISSON_STATE", "XDG_STATE_HOME", "HOME", "XDG_RUNTIME_DIR"} {
			t.Setenv(name, env[name])
		}
		got, want := state(os.Geteuid(), os.Getenv), store.Place(store.Options{})
		if got != want && (got != "" || os.Geteuid() == 0) {
			t.Errorf("%v: %q, and the store looks in %q", env, got, want)
		}
	}
}
