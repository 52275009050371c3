// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// characters is the locale of programs that are told of none. What sets it apart from C,
// which needs no files, is the characters: the order of words, dates and messages are
// the same (glibc 2.35, NEWS). Named for all of the locale it would have each program
// look for a file per category, 24 of them, a sixth of the time that a shell takes to
// start inside gVisor. CPython sets the same one (PEP 538).
const characters = "C.UTF-8"

// impatient keep tools from trying again where each attempt is answered at once and the
// same way (npm waits for 70 s otherwise).
var impatient = map[string]string{"npm_config_fetch_retries": "0", "PIP_RETRIES": "0"}

// Variables is the environment of programs, KEY=value, sorted: the image's, the search
// path, the user's, and more, of which later ones take the place of earlier ones. It has
// nothing of the caller's but what is in more. term is the kind of the program's
// terminal; empty is none. Variables that no one else sets tell runtimes the limits of l
// that they do not see.
func (e *Environment) Variables(term string, l sandbox.Limits, more ...map[string]string) []string {
	env := map[string]string{}
	if p := e.o.Plan; p != nil && p.Network == nil && e.Spec.Network != nil { // one that was adopted has no plan
		maps.Copy(env, impatient)
	}
	for _, v := range e.ImageEnv {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	u := e.Spec.User
	maps.Copy(env, map[string]string{"PATH": strings.Join(e.Search, ":"), "HOME": u.Home, "USER": u.Name, "LOGNAME": u.Name})
	if term != "" {
		env["TERM"] = term
	}
	for _, m := range append([]map[string]string{e.Trust}, more...) {
		maps.Copy(env, m)
	}
	if env["LANG"] == "" && env["LC_ALL"] == "" && env["LC_CTYPE"] == "" {
		env["LC_CTYPE"] = characters
	}
	for name, value := range sizes(l) {
		if _, named := env[name]; !named {
			env[name] = value
		}
	}
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// leastHeap is the least heap that V8 takes without being told, in MiB, on a machine of
// any size (Heap::MinOldGenerationSize).
const leastHeap = 256

// sizes are variables by which runtimes keep to limits. nproc, OpenMP and OpenBLAS, and
// so numpy, and Go start as many threads as there are processors for them, which the process
// level cannot show otherwise: a set of processors would keep two sandboxes on one while
// another one is idle.
func sizes(l sandbox.Limits) map[string]string {
	env := map[string]string{}
	if l.CPUs > 0 {
		threads := strconv.Itoa(min(int(math.Ceil(l.CPUs)), runtime.NumCPU()))
		env["OMP_NUM_THREADS"], env["GOMAXPROCS"] = threads, threads
	}
	if heap := l.Memory >> 20 * 3 / 4; heap > 0 && heap < leastHeap {
		env["NODE_OPTIONS"] = fmt.Sprintf("--max-old-space-size=%d", heap)
	}
	return env
}
