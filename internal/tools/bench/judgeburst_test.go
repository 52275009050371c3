// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// What go-judge says of each program is right or wrong: here a server stands for it.
func TestBurstOnJudge(t *testing.T) {
	for name, c := range map[string]struct {
		says  func(code string) verdict
		wrong int
	}{
		"right": {func(code string) verdict {
			right := map[string]verdict{
				good.code:   {Status: "Accepted", Files: map[string]string{"stdout": "4999950000\n"}},
				bad[0].code: {Status: "Time Limit Exceeded"},
				bad[1].code: {Status: "Nonzero Exit Status", ExitStatus: 1},
				bad[2].code: {Status: "Memory Limit Exceeded"},
				bad[3].code: {Status: "Output Limit Exceeded"},
				bad[4].code: {Status: "Nonzero Exit Status", ExitStatus: 139},
			}
			return right[code]
		}, 0},
		"all well": {func(string) verdict {
			return verdict{Status: "Accepted", Files: map[string]string{"stdout": "4999950000\n"}}
		}, 5},
		"all with 1":     {func(string) verdict { return verdict{Status: "Nonzero Exit Status", ExitStatus: 1} }, 48},
		"another result": {func(string) verdict { return verdict{Status: "Accepted"} }, 50},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var in struct{ Cmd []struct{ Args []string } }
				if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Cmd) != 1 || len(in.Cmd[0].Args) != 3 {
					t.Errorf("asked for %+v, %v", in, err)
					return
				}
				_ = json.NewEncoder(w).Encode([]verdict{c.says(in.Cmd[0].Args[2])})
			}))
			defer server.Close()
			sum := burstOf(t.Context(), 50, oneInTen, (&judge{url: server.URL}).judge)
			if sum.wrong != c.wrong || sum.refused != 0 || sum.bad != 5 || len(sum.took) != 50 {
				t.Errorf("%d wrong, %d refused of %d bad: %v", sum.wrong, sum.refused, sum.bad, sum.why)
			}
		})
	}
}
