// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

func Example() {
	file, err := policy.Parse("/srv/caisson.yaml", []byte(`version: 1
limits: {memory: 256MiB}
files:
  mounts: [{source: ./data, target: /data}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := policy.New(policy.Options{File: file})
	if err != nil {
		fmt.Println(err)
		return
	}
	call := &policy.Call{Kind: policy.RunCommand, Argv: []string{"make"}, Operator: true}
	call.Mounts = []policy.MountWish{{Source: "/srv/data/a.csv", Access: sandbox.ReadOnly}}
	v := p.Decide(call)
	fmt.Println(v.Decision, v.Plan.Mounts[1].Source, v.Plan.Mounts[1].Beneath)

	call.Mounts[0].Access = sandbox.ReadWrite
	v = p.Decide(call)
	fmt.Println(v.Decision, v.Rule)
	fmt.Println(v.Reason)
	fmt.Println(v.Hint)
	// Output:
	// allow /srv/data/a.csv [/srv/data]
	// deny /srv/caisson.yaml:4
	// /srv/data may be had as ro, not rw
	// change the entry to mode: rw
}

func ExampleParse() {
	_, err := policy.Parse("caisson.yaml", []byte("version: 1\nlimits: {memroy: 256MiB, wall: 30}\n"))
	fmt.Println(err)
	fmt.Println(sandbox.Hint(err))
	// Output:
	// caisson.yaml:2:10: limits has no key "memroy"
	// caisson.yaml:2:32: limits.wall: "30" is not a duration
	// did you mean memory?
}
